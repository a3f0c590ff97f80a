"""The app of ``proj``, whose workers have room for few letters that wait for the store."""

from proj import app

from celery_dlq.worker.writing.writer import Writer

__all__ = ["app"]

Writer.__init__.__kwdefaults__.update(size=50, batch_size=10)
