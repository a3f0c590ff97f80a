"""Waiting for the store, but not for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, TimeoutError
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from celery_dlq.errors import StoreUnavailable

T = TypeVar("T")

#: Calls to be made; None ends the thread.
_Calls: TypeAlias = "SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]"


def too_late(seconds: float) -> StoreUnavailable:
    """What is raised when a call has taken longer than ``seconds``."""
    return StoreUnavailable(
        f"The dead-letter store did not answer within {seconds:g} s; "
        "check that the database is up, or raise dlq_store_timeout."
    )


class Patience:
    """Makes calls on a thread of its own, and leaves one behind that takes longer than ``seconds``.

    A database's own timeouts bound a statement; nothing bounds a client whose server is frozen, or
    whose answer is stuck on the way.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._calls: _Calls | None = None
        self._latest: Future[Any] | None = None

    def call(self, work: Callable[[], T]) -> T:
        """The result of ``work``. A call that was left behind may still succeed, later.

        :raises StoreUnavailable: it took too long, or an earlier call still does.
        """
        if self._latest is not None and not self._latest.done():
            raise StoreUnavailable("The dead-letter store has still not answered an earlier call.")
        future = self._latest = Future[Any]()
        self._started().put((future, work))
        try:
            return future.result(self._seconds)  # type: ignore[no-any-return]
        except TimeoutError:
            if future.done():  # at the last moment, or the error is the work's own
                return future.result()  # type: ignore[no-any-return]
            raise too_late(self._seconds) from None

    def stop(self) -> None:
        """End the thread, once it is done with what it does; the next call starts another."""
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None

    def _started(self) -> _Calls:
        if self._calls is None:
            self._calls = SimpleQueue()
            thread = threading.Thread(
                target=_make_calls, args=(self._calls,), name="dlq-store", daemon=True
            )
            thread.start()
        return self._calls


def _make_calls(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        future, work = call
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            future.set_exception(error)
