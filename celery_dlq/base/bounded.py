"""Calls of code that may hang, each in a thread of its own, and with a time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

T = TypeVar("T")


class TakesTooLong(Exception):
    """The call has not ended in time."""

    def __init__(self, future: Future[Any]) -> None:
        super().__init__("The call has not ended in time.")
        #: Is done once the call has ended.
        self.future = future


def bounded(call: Callable[[], T], seconds: float, *, thread_name: str) -> T:
    """The result of ``call``, or its error.

    :param seconds: the most seconds that it may take.
    :raises TakesTooLong: it takes longer. It continues, and may still succeed.
    :raises RuntimeError: the system has no thread to spare.
    """
    future = in_thread(call, thread_name)
    wait([future], seconds)
    if not future.done():
        raise TakesTooLong(future)
    return future.result()


def in_thread(call: Callable[[], T], name: str) -> Future[T]:
    """Start ``call`` in a thread with this name. Nothing can stop code that hangs, so the thread does not
    keep its process from ending, as a thread of an executor does."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            future.set_exception(error)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:  # the system has no thread to spare
        future.set_exception(error)
    return future
