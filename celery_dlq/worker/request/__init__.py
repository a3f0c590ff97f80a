"""How one message ends in the worker's parent: the request class that Celery runs a task with, and its parts.

The pool reports the end of each run here. A message leaves as done, as a retry, as a letter, or is dropped on
purpose. This room never opens a store: ``Capture`` writes its letters.
"""
