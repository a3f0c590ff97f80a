"""The worker: it runs tasks in the processes of its pool, and handles their messages in the parent process.

Messages enter from Celery's consumer; letters and outcomes go to the store, or to the spool. The worker may
import neither the composition root nor a screen; ``wiring.py`` lists what it needs of the composition root.
"""
