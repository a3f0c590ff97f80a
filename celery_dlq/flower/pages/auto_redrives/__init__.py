"""The pages of automatic redrives: the list, one of them, and its runs."""
