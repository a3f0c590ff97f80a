"""The built-in rules: a table of exception types for each domain, and the probes that its rows name.

The class of an exception enters; rows leave, the most specific first. The table is in ``table/``, and
``table_files.py`` says how it is written; the codes and texts that probes look up are in ``codes.ini``.
No module of this room imports a library that it is about.
"""
