"""How one message ends in the worker's parent: the request class that Celery runs a task with, and its parts.

The pool reports the end of each run here, in the event loop, or in a thread of its own if it has no loop. At
a shutdown, ``write_now`` is called from a signal handler. A message leaves as done, as a retry, as a letter,
or is dropped on purpose. This room never opens a store: ``Capture`` writes its letters.
"""
