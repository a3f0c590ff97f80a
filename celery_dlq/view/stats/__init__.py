"""Reports beside the counts: what is kept of closed letters, messages of killed workers, and the server that
screens read from."""
