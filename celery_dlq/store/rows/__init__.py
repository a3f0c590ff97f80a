"""Rows and letters: turns one into the other, and holds the conditions and counts that several rooms of
the store share.

Values of ``model`` enter and leave; connections are passed in, and transactions belong to the caller.
"""
