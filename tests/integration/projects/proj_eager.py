"""The app of ``proj_ingest``, whose workers look for dead letters of the broker often."""

from proj_ingest import app

from celery_dlq.ingest import ingestion

__all__ = ["app"]

ingestion.POLL_S = 0.2
