"""The app of ``proj``, on which a drill's tasks work for a short time, and what is cut is back soon."""

from proj import app

from celery_dlq.drill import scenarios

__all__ = ["app"]

scenarios._WORK_S, scenarios._CUT_S = 2.0, 1.0
