"""Keeps closed letters in files outside the database, and brings them back.

Lines enter: one for each letter, made by the store. Segments leave, which are compressed files of lines, and
a manifest for each, which names the one before it. A letter is deleted from the store only after its segment
was read back and its manifest is in place. The room knows the store by its type and the place of the files
through fsspec; it knows neither SQL nor screens.
"""
