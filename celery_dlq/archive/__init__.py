"""Keeps closed letters in files outside the database, and brings them back.

Lines enter: one for each letter, made by the store. Segments leave, which are compressed files of lines. The
store has a row for each segment. It deletes a letter only after the segment was read back, in the
transaction that lets the segment count. The room knows the store by its type and the place of the files
through fsspec; it knows neither SQL nor screens.
"""
