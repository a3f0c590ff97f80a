"""The pages of redrives: the list, and one with its progress."""
