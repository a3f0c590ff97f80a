"""Writes the letters of requests to the store, or to the spool. Messages are acknowledged only afterwards.
Runs in the worker's parent, in the threads ``dlq-writer`` and ``dlq-store``.

Letters and outcomes enter, and every record takes the same path: ``LoopCallbacks`` -> ``Writer`` ->
``StoreCalls`` -> the store, in a storm through ``SaverProcess``. If the store fails, the record goes to the
spool. Then the request is called back. This room knows the store by its type. It may not know requests, why a
message ran, or what follows.
"""
