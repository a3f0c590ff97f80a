"""The tasks of ``proj_recorded``, in a worker that reports its trouble every second."""

from proj_recorded import app as app

from celery_dlq.upkeep import recovery

recovery.ROUND_S = 1.0
