"""Where the body runs: what it raised is judged, and answered by a retry or the end."""
