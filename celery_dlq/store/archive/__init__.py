"""The store's side of the archive: an account of its segments, and letters as lines.

Rows of a letter enter and a line leaves, or the other way round. ``celery_dlq/archive/`` has the files.
"""
