"""Sends dead letters back to their queues: a filter and orders enter; a plan leaves, and then an operation.

- ``orders`` are checked, and ``plan`` says what would be sent.
- ``lifecycle`` makes the operation, and runs it under a ``lease``.
- ``run`` is the loop: claim, publish, mark. ``ledger`` claims as many letters as ``pacing`` allows, and marks
  them.
- ``delivery`` hands a batch to the broker. For each letter: ``repair`` and ``contents``, with ``upgrades``
  and other ``functions`` of the user; ``checks``, with ``queues`` and ``validation``; ``chords``; then
  ``message``, ``publisher`` and ``amqp``.
- ``edit`` changes a message by hand.

The room knows the store by its types and the broker through kombu; it knows nothing of workers and screens.
"""
