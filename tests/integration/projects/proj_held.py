"""The app of ``proj`` in workers that soon give back the messages that they hold."""

from proj import app

from celery_dlq.worker.admission import gate

__all__ = ["app"]

gate.HOLD_S = 1.0
