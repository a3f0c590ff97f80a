"""Calls to the store, with a limit on the time to wait for each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, TimeoutError
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from celery_dlq.errors import StoreUnavailable

T = TypeVar("T")

#: Calls to make; None ends the thread.
_Calls: TypeAlias = "SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]"


def too_late(seconds: float) -> StoreUnavailable:
    """The error for a call that took longer than ``seconds``."""
    return StoreUnavailable(
        f"The dead-letter store did not answer within {seconds:g} s; "
        "check that the database is up, or raise dlq_store_timeout."
    )


class BoundedCalls:
    """Makes calls on a thread of its own, and abandons a call that takes longer than ``seconds``.

    A database's own timeouts limit a statement. They do not limit a client whose server is frozen, or whose
    answer is stuck on the way.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._calls: _Calls | None = None
        self._thread: threading.Thread | None = None
        self._latest: Future[Any] | None = None

    def call(self, work: Callable[[], T]) -> T:
        """The result of ``work``. An abandoned call may still succeed later.

        :raises StoreUnavailable: it took too long, or an earlier call still does.
        """
        if self._latest is not None and not self._latest.done():
            raise StoreUnavailable("The dead-letter store has still not answered an earlier call.")
        calls = self._started()
        future = self._latest = Future[Any]()
        calls.put((future, work))
        try:
            return future.result(self._seconds)  # type: ignore[no-any-return]
        except TimeoutError:
            if future.done():  # at the last moment; or the error is the work's own
                return future.result()  # type: ignore[no-any-return]
            raise too_late(self._seconds) from None

    def stop(self) -> None:
        """End the thread once its current call has ended; the next call starts another thread. An abandoned
        call is not waited for."""
        calls, thread = self._calls, self._thread
        self._calls = self._thread = None
        if calls is None or thread is None:
            return
        calls.put(None)
        if self._latest is None or self._latest.done():
            thread.join()

    def _started(self) -> _Calls:
        if self._calls is None:
            calls: _Calls = SimpleQueue()
            thread = threading.Thread(
                target=_make_calls, args=(calls,), name="dlq-store", daemon=True
            )
            # This raises an error while the system has no thread to spare; the next call tries again.
            thread.start()
            self._calls, self._thread = calls, thread
        return self._calls


def _make_calls(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        future, work = call
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            future.set_exception(error)
