"""Passes records and questions to the writer, and calls back in the thread where Celery expects it."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from celery.utils.log import get_logger

from celery_dlq.spool.segment import Record
from celery_dlq.worker.failure import logged
from celery_dlq.worker.writing.writer import HELD_QUIET_S, QUIET_S, UNFINISHED, Writer

if TYPE_CHECKING:
    from celery_dlq.store import Store

logger: logging.Logger = get_logger(__name__)

K = TypeVar("K")
T = TypeVar("T")

#: Seconds after which a record that must be safe now goes to the spool, if the writer is held up.
NOW_S = 10.0


class LoopCallbacks:
    """Has records written and questions put, and calls back: in the event loop if the caller runs in its
    thread; otherwise the caller waits.

    Broker channels are not thread-safe, so the writer's thread cannot acknowledge. If the event loop waited
    instead, there would be one commit between any two messages.
    """

    def __init__(self, writer: Writer, spool: Callable[[Record], object]) -> None:
        """:param spool: keeps a record without the writer."""
        self._writer, self._spool = writer, spool
        self._safe: deque[Callable[[], object]] = deque()
        self._loop_thread: int | None = None
        self._wakeup = _LoopWakeup()

    @property
    def is_in_loop(self) -> bool:
        """Whether the caller runs in the event loop, so that it does not wait."""
        return threading.get_ident() == self._loop_thread

    def write(self, what: Record, then: Callable[[], object], *, urgent: bool = False) -> None:
        """Make ``what`` durable, then call ``then``.

        :param urgent: whether the message keeps another one from being delivered until then.
        """
        quiet_s = (HELD_QUIET_S if urgent else QUIET_S) if self.is_in_loop else 0.0
        self._call_back(
            lambda safe: self._writer.write(what, partial(safe, None), quiet_s=quiet_s),
            lambda _: then(),
        )

    def write_now(self, what: Record) -> None:
        """Make ``what`` durable before returning. For signal handlers: the interrupted code may hold a lock
        of the writer's, so another thread hands the record to the writer."""
        stored = threading.Event()
        threading.Thread(
            target=self._writer.write,
            args=(what, stored.set),
            kwargs={"quiet_s": 0.0},
            daemon=True,
        ).start()
        if not stored.wait(NOW_S):
            self._spool(what)

    def ask(self, question: Callable[[Store], T], then: Callable[[T | None], object]) -> None:
        """Put ``question`` to the store, then call ``then`` with the answer; None if the store did not
        answer. Earlier records are stored, or spooled, by then."""
        self._call_back(partial(self._writer.ask, question), then)

    def ask_together(
        self,
        question: Callable[[Store, Sequence[K]], Sequence[T]],
        about: K,
        then: Callable[[T | None], object],
    ) -> None:
        """Put ``question`` to the store in one call for all waiting questions of its kind: it gets all their
        subjects, and answers in the same order. Earlier records need not be stored by then."""
        self._call_back(partial(self._writer.ask_together, question, about), then)

    def _call_back(
        self,
        put: Callable[[Callable[[T | None], object]], None],
        then: Callable[[T | None], object],
    ) -> None:
        """Call ``then`` with the answer to what ``put`` gives to the writer."""
        if self.is_in_loop:
            put(lambda answer: self._call_in_loop(partial(then, answer)))
            return
        answered, answers = threading.Event(), list[T | None]()

        def keep(answer: T | None) -> None:
            answers.append(answer)
            answered.set()

        put(keep)
        answered.wait()
        then(answers[0])

    def join_loop(self, hub: Any) -> None:
        """Call back in ``hub`` (the caller's thread runs it) until :meth:`leave_loop`."""
        hub.add_reader(self._wakeup.read_fd, self._on_wakeup)
        self._loop_thread = threading.get_ident()

    def leave_loop(self) -> None:
        """Finish the records under way; from now on every caller waits. The loop is about to end, and would
        never call back for results that come in while the pool is joined."""
        self._loop_thread = None
        self._writer.flush()
        self._run_safe()

    def _call_in_loop(self, then: Callable[[], object]) -> None:
        self._safe.append(then)
        if len(self._safe) == 1:  # the loop is woken for those before
            self._wakeup.wake()

    def _on_wakeup(self) -> None:
        self._wakeup.silence()
        self._run_safe()

    def _run_safe(self) -> None:
        while self._safe:
            then = self._safe.popleft()
            # As billiard treats a callback that raises; the loop must go on.
            with logged(logger, UNFINISHED):
                then()


class _LoopWakeup:
    """Wakes an event loop from another thread."""

    def __init__(self) -> None:
        self.read_fd, self._write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        os.set_blocking(self._write_fd, False)

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # the pipe is full: it wakes already
            os.write(self._write_fd, b"!")

    def silence(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.read_fd, 65_536)

    def __del__(self) -> None:
        os.close(self.read_fd)
        os.close(self._write_fd)
