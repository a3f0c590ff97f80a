"""The app of the browser tests; its workers and its Flower import it."""

import json
import os
from pathlib import Path

from celery import Celery
from queues import queue_settings

from celery_dlq import Approval, AutoRedrive, DeadLetterQueue, DLQTask, Filter, Timetable
from celery_dlq.flower.resources import letters
from celery_dlq.store.letters import pages

app = Celery("shopfront", broker=os.environ["PROJ_BROKER"], backend=os.environ["PROJ_BACKEND"])
app.conf.update(
    **queue_settings(os.environ["PROJ_QUEUE"], "classic"),
    dlq_store_url=os.environ["PROJ_STORE"],
    dlq_spool_dir=os.environ["PROJ_SPOOL"],
    dlq_retry_base=0.02,
    dlq_retry_cap=0.1,
    dlq_max_attempts=3,
    dlq_release="1.4.2",
    broker_connection_retry_on_startup=True,
    worker_send_task_events=True,
    worker_hijack_root_logger=False,
)

app.conf.dlq_auto_redrive = [
    AutoRedrive(
        "currencies",
        where=Filter(task="charge"),
        after_s=0,
        when=Timetable(every_s=3_600),
        mode="shadow",
        owner="payments",
    )
]

# Settings of one Flower.
app.conf.update(json.loads(os.environ["PROJ_SETTINGS"]))
if "PROJ_APPROVAL" in os.environ:
    app.conf.dlq_approval = Approval()

if "PROJ_SEARCH_STEP" in os.environ:
    # As if there were a million letters: a page looks at so few of them.
    pages.STEP, letters.SEARCH_PATIENCE_S = int(os.environ["PROJ_SEARCH_STEP"]), 0

#: The warehouse answers once this file is there.
FIXED = Path(os.environ["PROJ_FIXED"])


class UnknownCurrency(ValueError):
    """No such currency."""


@app.task(base=DLQTask, name="shop.charge")
def charge(order_id, currency="EUR", card_number=None):
    """Fails until its arguments are fixed."""
    if currency not in ("EUR", "USD"):
        raise UnknownCurrency(f"order {order_id}: no currency {currency!r}")


@DeadLetterQueue.of(app).repair("currency in capitals")
def in_capitals(args, kwargs, headers):
    """Changes eur to EUR."""
    return args, {**kwargs, "currency": kwargs["currency"].upper()}, headers


@app.task(base=DLQTask, name="shop.ship")
def ship(order_id):
    """Fails until the warehouse answers."""
    if not FIXED.exists():
        raise ConnectionRefusedError(111, "the warehouse does not answer")


@app.task(base=DLQTask, name="shop.invoice")
def invoice(order_id):
    """Fails until the warehouse answers."""
    if not FIXED.exists():
        raise KeyError("street")
