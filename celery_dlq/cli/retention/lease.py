"""The lease under which one process at a time removes letters."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from celery_dlq.cli.exits import FAILED
from celery_dlq.cli.session import Session
from celery_dlq.store.base import Lease
from celery_dlq.store.tenure import Tenure, kept
from celery_dlq.upkeep.expiring import LEASE


@contextmanager
def removing(session: Session, command: str) -> Iterator[tuple[Lease, Callable[[float], bool]]]:
    """The lease, until the ``with`` block ends, and a function that waits for a number of seconds and says
    whether the lease was lost. Ends the command if another process has the lease.

    :param command: names the holder.
    """
    holder = f"{command}/{os.getpid()}/{uuid.uuid4().hex}"
    tenure = Tenure(lambda: session.queue.store, LEASE, holder)
    lease = tenure.prolong()
    if lease is None:
        session.error(
            "A worker or another command removes letters at the moment. Try again in a minute."
        )
        click.get_current_context().exit(FAILED)
    try:
        with kept(tenure, lease) as is_held:
            yield lease, lambda seconds: _wait(seconds) or not is_held()
    finally:
        tenure.end()


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False
