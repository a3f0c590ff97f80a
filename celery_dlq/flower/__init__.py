"""The "Dead letters" tab in Flower, and its REST API.

HTTP requests enter; pages and JSON leave. The tab reads the store, and leaves redrives to workers. Nothing
outside this room imports Flower or Tornado. If Flower is installed, ``celery -A <app> flower`` shows the tab
without any setup; code that creates a ``Flower`` itself calls :func:`attach` with it.
"""

from celery_dlq.flower.attach import attach

__all__ = ["attach"]
