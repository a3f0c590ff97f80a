"""The app of ``proj`` in workers that soon give back the messages that they hold."""

from proj import app

from celery_dlq.worker.admission import valve

__all__ = ["app"]

valve.HOLD_S = 1.0
