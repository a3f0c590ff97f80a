"""Retention: how long closed letters and history are kept. One worker at a time deletes older ones, in small
transactions with pauses. Open letters never expire.

:class:`~celery_dlq.upkeep.retention.definition.Retention` is what users write in ``dlq_retention``.
"""
