"""Erases the letters of a person, when a person asks for that: from the archive and from the store.

Task ids, or conditions on arguments, enter. A look says where such letters are; an erasure removes them, and
says what has to be done elsewhere.
"""
