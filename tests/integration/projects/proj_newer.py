"""The tasks of ``proj``, in a worker that often looks for a newer schema."""

from proj import app as app

from celery_dlq.store.database import transactions

transactions.LOOK_S = 1.0
