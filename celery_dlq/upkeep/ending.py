"""Ends a stalled worker, so that its supervisor starts it again (``dlq_on_stall = "exit"``)."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from billiard.process import active_children
from celery.utils.log import get_logger
from celery.worker import state

from celery_dlq.worker.reception import is_asked_to_end

logger: logging.Logger = get_logger(__name__)

#: The exit status: EX_TEMPFAIL of sysexits.h. It is not 0, because some supervisors restart a worker only
#: after a failure.
EXIT_STATUS = 75
#: Seconds for a warm shutdown without running tasks. It may wait forever for an answer on a dead connection.
SHUTDOWN_S = 30.0
#: Seconds between two looks.
TICK_S = 0.25


class Ending(threading.Thread):
    """Lets running tasks end, asks Celery for a warm shutdown, and ends the process if that hangs. It is not
    stopped with the worker's other threads, because the rest of the shutdown may hang, too.

    :param is_stalled: whether the worker has still received nothing.
    :param has_ended: whether the worker has shut down.
    :param grace_s: seconds that running tasks have to end.
    :param finish: called before the process ends without the worker's shutdown.
    :param end_process: ends the process and those of its pool at once, with this status.
    """

    def __init__(
        self,
        is_stalled: Callable[[], bool],
        has_ended: Callable[[], bool],
        *,
        grace_s: float,
        finish: Callable[[], object],
        end_process: Callable[[int], object] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__(name="dlq-ending", daemon=True)
        self._is_stalled, self._has_ended = is_stalled, has_ended
        self._grace_s, self._finish = grace_s, finish
        self._end_process = end_process or end_process_now
        self._monotonic, self._sleep = monotonic, sleep

    def run(self) -> None:
        """End the worker, unless it receives messages again or is already shutting down."""
        self._wait(self._grace_s, lambda: not (state.active_requests and self._must_end()))
        if not self._must_end():
            return
        if not state.active_requests:
            # Celery's event loop reads it.
            state.should_stop = EXIT_STATUS
            if self._wait(SHUTDOWN_S, self._has_ended):
                return
        self._end_by_force()

    def _must_end(self) -> bool:
        return self._is_stalled() and not (self._has_ended() or is_asked_to_end())

    def _wait(self, seconds: float, is_over: Callable[[], bool]) -> bool:
        """Wait at most this long; whether ``is_over`` became true."""
        until = self._monotonic() + seconds
        while not is_over():
            if self._monotonic() >= until:
                return False
            self._sleep(TICK_S)
        return True

    def _end_by_force(self) -> None:
        running = len(state.active_requests)
        logger.critical(
            "the stalled worker does not shut down, so it ends now, with status %d; tasks that still run: %d",
            EXIT_STATUS, running,
        )  # fmt: skip
        try:
            self._finish()
        except Exception:
            logger.exception("celery_dlq could not finish before the worker's end")
        self._end_process(EXIT_STATUS)


def end_process_now(status: int) -> NoReturn:
    """Kill the processes of this process's pool, then end this process with ``status``. A task that ran
    without its parent could not be recorded."""
    for child in active_children():
        with contextlib.suppress(OSError):  # it has just ended
            os.kill(child.pid, signal.SIGKILL)
    os._exit(status)
