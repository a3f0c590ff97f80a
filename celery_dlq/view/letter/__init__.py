"""One letter in words: its reason, body, repairs, and the signature of its task."""
