"""The app of ``proj`` with tasks that fail in many ways over values of their messages. Its log shows each
record of Celery and of celery_dlq whole, with the facts that only custom handlers see, and no other."""

import logging
import sys
import time

from celery.signals import setup_logging
from proj import FIXED, app

from celery_dlq import DeadLetterQueue, DLQTask, Filter, Redrive
from celery_dlq.store import tenure
from celery_dlq.upkeep import chores, periodic
from celery_dlq.upkeep.automation import dispatcher

tenure.LEASE_S, tenure.TRY_S = 1.0, 0.2
periodic.TRY_S = chores.TRY_S = chores.LOOK_S = 0.2
dispatcher.LOOK_S, dispatcher.SWEEP_S = 0.1, 0.2

dlq = DeadLetterQueue.of(app)
log = logging.getLogger("shop.private")


class Whole(logging.Formatter):
    def format(self, record):
        return f"{super().format(record)} {vars(record)}"


@setup_logging.connect
def set_up(**_):
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Whole("%(name)s: %(message)s"))
    handler.addFilter(lambda record: not record.name.startswith("shop"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def fails(planted):
    """Log a value, and fail with two more."""
    log.info("it is %s", planted["log"])
    try:
        raise LookupError(planted["cause"])
    except LookupError as error:
        raise ValueError(f"no {planted['message']}") from error


@app.task(base=DLQTask, name="proj.pay")
def pay(planted, *, to=""):
    if not FIXED.exists() or "again" in planted:
        fails(planted)


@app.task(base=DLQTask, name="proj.again")
def again(planted):
    raise ConnectionError(planted["attempt"])


@app.task(base=DLQTask, name="proj.leaves", acks_late=True)
def leaves(planted):
    raise SystemExit(planted["exit"])


def bad_key(planted):
    raise ValueError(planted["key"])


class Judged(DLQTask):
    def classify(self, exc):
        raise ValueError(exc.args[0])


@app.task(base=Judged, name="proj.judged", dlq_breaker_key=bad_key)
def judged(planted):
    raise RuntimeError(planted["judged"])


@app.task(base=DLQTask, name="proj.runs", ignore_result=True)
def runs(planted):
    FIXED.with_name("began").touch()
    time.sleep(600)


def hook(letter):
    raise ValueError(letter.message)


@dlq.handler(where=Filter(task="proj.handled"))
def repairs(letter):
    return Redrive(kwargs={"planted": {"again": 1, **letter.kwargs["planted"]["right"]}})


@app.task(base=DLQTask, name="proj.handled")
def handled(planted):
    if "right" in planted:
        raise ValueError("wrong")
