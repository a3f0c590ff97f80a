"""Lets a request that is under suspicion be the only one that runs in its worker.

When a whole worker dies, each message that ran in it comes back, and nobody can say which one killed
it. A run that nothing else ran beside leaves no doubt.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from celery.utils.log import get_logger
from celery.worker import state

logger = get_logger(__name__)

#: Seconds between looks whether the others, or the one that is alone, have ended.
TICK_S = 0.1
#: Seconds for which other requests are held at most. A task may wait for one that is held, and tasks
#: without a time limit may run for ever.
HOLD_S = 900.0


@dataclass
class _Stay:
    """One request's time alone."""

    request: Any
    #: Starts it; told whether it is alone.
    start: Callable[[bool], object]
    #: Called when others are to be let in beside it, with what lets them in.
    joined: Callable[[Callable[[], object]], object]
    until: float
    running: bool = False


class Solitude:
    """Stands between a worker's consumer and its pool. While a request is alone, or waits for that,
    all others are held: unacknowledged, so that whatever ends the worker gives them back."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._consumer: Any = None
        self._run: Callable[[Any], object]
        self._stay: _Stay | None = None
        self._held: deque[Any] = deque()
        self._coming: set[Any] = set()
        # Without an event loop Celery runs its timers on a thread.
        self._lock = threading.RLock()

    def join(self, consumer: Any) -> None:
        """Stand before the pool of ``consumer``; once, before it starts."""
        self._consumer, self._run = consumer, consumer.on_task_request
        consumer.on_task_request = self._take

    def expect(self, request: Any) -> None:
        """``request`` has a slot of the pool and may run any moment."""
        self._coming.add(request)

    def arrived(self, request: Any) -> None:
        """``request`` runs, or will not."""
        self._coming.discard(request)

    def keeps_out(self, request: Any) -> bool:
        """Whether ``request`` must not run now. It is held then, and its slot of the pool given back."""
        with self._lock:
            if self._stay is None or self._stay.request is request:
                return False
            self._held.append(request)
        self.give_slot_back()
        return True

    def enter(
        self,
        request: Any,
        start: Callable[[bool], object],
        joined: Callable[[Callable[[], object]], object],
    ) -> None:
        """Call ``start`` once nothing but ``request`` runs; requests that come meanwhile are held until
        it has ended, for :data:`HOLD_S` at most. When another one is alone, ``request`` waits with the
        others, and is given to the pool anew.

        :param start: told whether it is alone; False when the others took too long.
        :param joined: called when others are to be let in beside it, with what lets them in.
        """
        if self.keeps_out(request):
            return
        self._stay = _Stay(request, start, joined, self._monotonic() + HOLD_S)
        self._tick()

    def stop(self) -> None:
        """The connection is lost, or the worker shuts down: what is held goes back to the broker."""
        with self._lock:
            self._stay = None
            self._held.clear()
            self._coming.clear()

    def give_slot_back(self) -> None:
        """Free the pool's slot of a request that will not run now. Only prefork counts slots here;
        elsewhere this does nothing."""
        release = getattr(self._consumer.controller, "_quick_release", None)
        if release is not None:
            release()

    def _take(self, request: Any) -> None:
        if self._stay is not None:  # nothing else may cost a first delivery
            with self._lock:
                if self._stay is not None:
                    self._held.append(request)
                    return
        self._run(request)

    def _tick(self) -> None:
        stay = self._stay
        if stay is None:
            return
        try:
            self._look_at(stay)
        except Exception:
            logger.exception("celery_dlq could not let %s be alone", stay.request.id)
            self._end(stay)
        if self._stay is stay:
            self._consumer.timer.call_after(TICK_S, self._tick)

    def _look_at(self, stay: _Stay) -> None:
        late = self._monotonic() >= stay.until
        if stay.running and stay.request not in state.reserved_requests:
            self._end(stay)
        elif late:
            stay.until = float("inf")
            self._let_others_in(stay)
        elif not stay.running and not self._others_run(stay.request):
            stay.running = True
            stay.start(True)

    def _let_others_in(self, stay: _Stay) -> None:
        if stay.running:
            stay.joined(partial(self._end, stay))
        else:
            self._end(stay)
            stay.start(False)

    def _others_run(self, request: Any) -> bool:
        # What waits for a slot runs as soon as one is free, which is before this is asked again; and
        # what another gate of ours holds has not been given to the pool.
        given = (other for other in tuple(state.reserved_requests) if other is not request)
        return bool(self._coming - {request}) or any(
            getattr(other, "_apply_result", None) is not None for other in given
        )

    def _end(self, stay: _Stay) -> None:
        with self._lock:
            if self._stay is not stay:
                return
            self._stay = None
            held, self._held = self._held, deque()
        for request in held:
            self._take(request)
