"""Checks whether a retry was sent. A task's own ``apply_async()`` may keep a message back and return as if it
had sent the message. For example, celery-singleton does so while the task holds its lock, and during a retry
the task still holds it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import signals
from celery.exceptions import Reject


class _Here(threading.local):
    #: The names of the tasks whose messages this thread has sent; None outside of :func:`must_be_sent`.
    sent: set[str] | None = None


_here = _Here()


@contextmanager
def must_be_sent(task: str) -> Iterator[None]:
    """Check that this thread sends a message of ``task``, a task's name, before the block ends.

    :raises Reject: the task has asked for its retry, and nothing was sent.
    """
    # A task's apply_async() may call send_task() instead of Celery's own apply_async(), so the signal is
    # needed. It is not enough on its own: before 5.7 an app may keep a list of receivers that is no longer
    # the signal's.
    signals.after_task_publish.connect(_hear, weak=False, dispatch_uid=__name__)
    _here.sent = set()
    try:
        yield
        if task not in _here.sent:
            raise Reject("the task's own apply_async() did not send it", requeue=False)
    finally:
        _here.sent = None


def note_sent(task: str) -> None:
    """Note that Celery sends a message of ``task``."""
    if _here.sent is not None:
        _here.sent.add(task)


def _hear(sender: str, **_: Any) -> None:
    note_sent(sender)
