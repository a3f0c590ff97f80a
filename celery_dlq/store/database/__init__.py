"""The database itself: how it is opened, its tables and their schema, its clock, and its errors.

A URL or a connection enters; rows and the errors of :mod:`celery_dlq.errors` leave. Each supported database
is one class, and every difference between databases belongs there. Nothing in this room knows the meaning of
a letter.
"""
