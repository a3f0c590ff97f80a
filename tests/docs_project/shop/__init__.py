"""The project that the documentation's examples are about: what a block imports from ``shop`` is here."""

from celery import Celery

from celery_dlq import DLQTask

app = Celery("shop", broker="memory://")


@app.task(base=DLQTask)
def charge(order_id, card="", amount="1", currency="EUR"):
    return int(amount)
