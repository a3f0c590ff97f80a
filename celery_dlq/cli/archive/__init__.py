"""The commands about the archive."""
