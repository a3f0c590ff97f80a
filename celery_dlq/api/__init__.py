"""The Python API: ``DeadLetterQueue``, built once for each Celery app, and the methods it gathers by
subject.

This is the composition root. It reads the settings and passes to each room its dependencies; the rooms
do not import it.
"""
