"""Messages that never become a request."""
