"""A guard that runs a suspect alone: no other request runs in its worker at the same time.

When a whole worker dies, each message that ran in it comes back, and any of them may have killed it. If only
one request ran when the worker died, no other request can be to blame.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from celery.utils.log import get_logger
from celery.worker import state

from celery_dlq.worker.admission import Guard
from celery_dlq.worker.end.handover import free_slot
from celery_dlq.worker.failure import logged

logger: logging.Logger = get_logger(__name__)

#: Seconds between two checks whether the other requests, or the isolated one, have ended.
TICK_S = 0.1
#: The most seconds for which other requests are held. A task may be waiting for one that is held, and tasks
#: without a time limit may run forever.
HOLD_S = 900.0


@dataclass
class _Isolation:
    """The time in which one request runs alone."""

    request: Any
    #: Starts the request. The argument says whether it is alone.
    start: Callable[[bool], object]
    #: Called before other requests run at the same time, with the function that lets them go on.
    joined: Callable[[Callable[[], object]], object]
    until: float
    running: bool = False


class IsolatedRun(Guard):
    """Holds all other requests while one request is alone, or waits to be alone. A held message stays
    unacknowledged, so the broker delivers it again however the worker ends."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._isolation: _Isolation | None = None
        self._held: deque[Any] = deque()
        self._coming: set[Any] = set()
        # Without an event loop Celery runs its timers on a thread.
        self._lock = threading.RLock()

    def admits(self, request: Any) -> bool:
        """Whether no request is alone, or waits to be. Otherwise ``request`` is held until that one has
        ended."""
        if self._isolation is None:  # a first delivery must cost no more than this
            return True
        with self._lock:
            if self._isolation is None:
                return True
            self._held.append(request)
            return False

    @property
    def is_on(self) -> bool:
        """Whether a request is alone, or waits to be."""
        return self._isolation is not None

    def expect(self, request: Any) -> None:
        """Note that ``request`` has a slot of the pool and may run at any moment."""
        self._coming.add(request)

    def arrived(self, request: Any) -> None:
        """Note that ``request`` runs, or will not run."""
        self._coming.discard(request)

    def keeps_out(self, request: Any) -> bool:
        """Whether ``request``, which has a slot of the pool, must not run now. If so, it is held, and its
        slot is free again."""
        with self._lock:
            if self._isolation is None or self._isolation.request is request:
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
        """Call ``start`` once nothing but ``request`` runs. Requests that come in the meantime are held until
        it has ended, for :data:`HOLD_S` at most. If another request is already alone, ``request`` is held
        with the others, and given to the pool again later.

        :param start: called with whether ``request`` is alone; False if the others took too long.
        :param joined: called before others run at the same time, with the function that lets them go on.
        """
        if self.keeps_out(request):
            return
        self._isolation = _Isolation(request, start, joined, self._monotonic() + HOLD_S)
        self._tick()

    def stop(self) -> None:
        """Called when the connection is lost, or the worker shuts down. Held messages go back to the
        broker."""
        super().stop()
        with self._lock:
            self._isolation = None
            self._held.clear()
            self._coming.clear()

    def next_in_line(self, most: int) -> list[Any]:
        """The requests that get the next slots of the pool."""
        slots = getattr(self._consumer.controller, "semaphore", None)
        return [args[0] for _, args, _ in islice(getattr(slots, "_waiting", ()), most)]

    def give_slot_back(self) -> None:
        """Free the pool slot of a request that will not run now. Only prefork counts slots here; with other
        pools this does nothing."""
        free_slot(self._consumer.controller)

    def _tick(self) -> None:
        isolation = self._isolation
        if isolation is None:
            return
        try:
            self._look_at(isolation)
        except Exception:
            logger.exception("celery_dlq could not isolate %s", isolation.request.id)
            self._end(isolation)
        if self._isolation is isolation:
            self._consumer.timer.call_after(TICK_S, self._tick)

    def _look_at(self, isolation: _Isolation) -> None:
        late = self._monotonic() >= isolation.until
        if isolation.running and isolation.request not in state.reserved_requests:
            self._end(isolation)
        elif late:
            isolation.until = float("inf")
            if isolation.running:
                isolation.joined(partial(self._end, isolation))
            else:
                self._end(isolation)
                isolation.start(False)
        elif not isolation.running and not self._others_run(isolation.request):
            isolation.running = True
            isolation.start(True)

    def _others_run(self, request: Any) -> bool:
        # A request that waits for a slot runs as soon as one is free, that is, before the next check. A
        # request that an earlier guard holds has not been given to the pool.
        return bool(self._coming - {request}) or any(
            other is not request and getattr(other, "_apply_result", None) is not None
            for other in tuple(state.reserved_requests)
        )

    def _end(self, isolation: _Isolation) -> None:
        with self._lock:
            if self._isolation is not isolation:
                return
            self._isolation = None
            held, self._held = self._held, deque()
        for request in held:
            with logged(logger, "celery_dlq could not let go of %s", request):
                # A request before this one may have to be alone, too.
                if self.admits(request):
                    self._onward(request)
