"""The worker: it runs tasks in the processes of its pool, and handles their messages in the parent process.

Messages enter from Celery's consumer; letters and outcomes go to the store, or to the spool. The worker may
import neither the composition root nor a screen; ``wiring.py`` lists what it needs of the composition root.

The folders say which process and thread runs their code. ``body`` runs in the process of the pool that runs a
task; a pool without processes runs it in the parent, too. Everything else runs in the parent: ``admission``
and ``end`` in the event loop, or in the thread in which the pool reports an end; ``writing`` in the threads
``dlq-writer`` and ``dlq-store``, except for the calls that enter it. The task itself (``task.py``,
``options.py``) is in both. ``consumer.py`` puts one worker together, and imports all others.
"""
