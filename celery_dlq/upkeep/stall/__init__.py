"""The watch for stalls: messages wait in the broker, the worker could take them, and it receives none.

The consumer's counters enter (:class:`~celery_dlq.worker.reception.Reception`), and the depths of its queues,
on a connection of the watch's own. A log line and an event for hooks leave, and the end of the worker if the
user wants that. The watch runs in a thread of its own, so it also notices an event loop that hangs.
"""
