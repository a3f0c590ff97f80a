"""Sends dead letters back to their queues: a filter and orders enter; a plan leaves, and then an operation.

- ``operation`` has its life: planned, made, run under a lease, paused, resumed, cancelled. ``orders`` are
  checked, and ``plan`` says what would be sent.
- ``loop`` claims, prepares, publishes and marks. ``ledger`` claims as many letters as ``pacing`` allows, and
  marks them.
- ``letter`` leads from a letter to a message that may be sent, and ``broker`` to the broker and back.

The room knows the store by its types and the broker through kombu; it knows nothing of workers and screens.
"""
