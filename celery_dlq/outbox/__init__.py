"""Keeps messages that the broker did not take from their sender: see ``dlq_unsent``. Runs in any process that
sends messages. Workers send them later (:mod:`celery_dlq.upkeep.parked`)."""
