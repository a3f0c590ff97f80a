"""The "Dead letters" tab in Flower, and its REST interface.

Nothing has to be done for it: ``celery -A <app> flower`` shows the tab once Flower is installed. Who makes
a ``Flower`` by hand calls :func:`attach` with it.
"""

from celery_dlq.flower.attach import attach

__all__ = ["attach"]
