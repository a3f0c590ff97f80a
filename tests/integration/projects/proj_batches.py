"""The app of ``proj`` with tasks that take messages three at a time, and one that cannot be captured."""

import os
import signal

import celery_batches
from proj import app, unless_fixed

from celery_dlq import DLQTask


class Batched(DLQTask, celery_batches.Batches):
    """Dead letters, in batches."""

    abstract = True
    flush_every, flush_interval = 3, 1


@app.task(base=Batched, name="proj.bulk")
def bulk(requests):
    unless_fixed(ValueError(f"bad currency in {len(requests)} orders"))


@app.task(base=Batched, name="proj.bulk_kills", acks_late=True)
def bulk_kills(requests):
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(base=DLQTask, name="proj.odd", Request=dict)
def odd(): ...
