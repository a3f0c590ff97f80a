"""A small shop whose tasks fail in all the usual ways; see README.md beside this file."""
