"""A guard that holds messages back while running them would only make dead letters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from celery.utils.log import get_logger
from celery.worker import state

from celery_dlq.model.letter import DeadLetter, Outcome
from celery_dlq.model.states import Reason
from celery_dlq.worker.admission.brake import Brake, Braked, Released
from celery_dlq.worker.admission.pipeline import Guard, Onward, watch_end
from celery_dlq.worker.body.ending import reported
from celery_dlq.worker.request.request import DLQRequest

logger = get_logger(__name__)

#: Seconds between looks at the held messages.
TICK_S = 0.25
#: Bytes of held messages beyond which the prefetch limit is raised no further.
HELD_BYTES = 64 * 1024 * 1024

#: Deaths that say something about the task as it is deployed. With the other reasons, the task did not run.
OF_A_RUN = frozenset(
    {Reason.TERMINAL, Reason.EXHAUSTED, Reason.BUDGET, Reason.TIMEOUT, Reason.POISON, Reason.REJECTED,
     Reason.UNSTORED}
)  # fmt: skip


@dataclass(frozen=True)
class _Held:
    request: Any
    since: float
    #: How far the prefetch limit was raised for it.
    raised: int
    size: int


class Gate(Guard):
    """Holds a request while its task is braked, or while too many letters wait for the writer.

    A held message is unacknowledged, like one that waits for Celery's own rate limit. So nothing is
    lost or doubled: a warm shutdown, a lost connection or a crash gives it back to the broker.

    :param brake: None if ``dlq_brake_failures`` is 0.
    :param is_full: whether the writer holds as many letters as it may.
    :param spare: the prefetch limit is raised for this many messages of braked tasks, so that the messages
        of other tasks that follow them in the queue are still delivered.
    :param hold_s: seconds after which a held message goes back to the broker.
    """

    def __init__(
        self,
        brake: Brake | None,
        is_full: Callable[[], bool],
        *,
        spare: int,
        hold_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._brake, self._is_full, self._monotonic = brake, is_full, monotonic
        self._spare, self._hold_s, self._hold_at_most_s = spare, hold_s, hold_s
        self._held: list[_Held] = []
        self._probes: dict[str, Any] = {}
        # Without an event loop Celery runs its timers on a thread.
        self._lock = threading.Lock()
        self._consumer: Any = None
        self._onward: Onward
        self._timer_entry: Any = None

    def join(self, consumer: Any, onward: Onward) -> bool:
        """Every message has to pass: the writer may be full at any time."""
        self._consumer, self._onward = consumer, onward
        return True

    def admits(self, request: Any) -> bool:
        """Whether the task of ``request`` may run. If not, the request is held."""
        return (self._brake is None and not self._is_full()) or not self._holds(request)

    def start(self) -> None:
        """The broker is connected."""
        channel = self._consumer.connection.default_channel
        visible_after_s = getattr(channel, "visibility_timeout", None)
        if visible_after_s:
            # Half of it, because some seconds had passed before the message came here.
            self._hold_at_most_s = min(self._hold_s, float(visible_after_s) / 2)
        self._timer_entry = self._consumer.timer.call_repeatedly(TICK_S, self.tick)

    def stop(self) -> None:
        """The connection is lost, or about to be closed. The broker delivers the held messages again. Probes
        stay: one that runs may end well, and for one that is forgotten the next tick allows another."""
        if self._timer_entry is not None:
            self._timer_entry.cancel()
        with self._lock:
            self._held.clear()

    def note(self, record: DeadLetter | Outcome) -> None:
        """``record`` is about to be written."""
        if self._brake is not None and isinstance(record, DeadLetter) and record.reason in OF_A_RUN:
            self._notify_brake(self._brake.failed, record.task)

    def tick(self) -> None:
        """Let go of the requests that may run, and give back those that have waited too long."""
        if self._consumer.connection is None:  # lost: the broker delivers the messages again
            return
        try:
            self._look_after_probes()
            for held in self._freed():
                self._let_go(held)
        except Exception:
            logger.exception("celery_dlq could not look after held messages")

    def status(self) -> Mapping[str, Any]:
        """The held messages, for ``celery inspect stats``."""
        braked = {} if self._brake is None else self._brake.status()
        return {"held": len(self._held), "braked": braked, "writer_full": self._is_full()}

    def _holds(self, request: Any) -> bool:
        try:
            if not isinstance(request, DLQRequest):
                return False
            if self._brake is not None:
                watch_end(request, partial(self._on_end, request.type, self._brake))
            if self._may_run(request.type):
                return False
            self._hold(request)
        except Exception:
            logger.exception("celery_dlq could not hold %s", request)
            return False
        return True

    def _may_run(self, task: str) -> bool:
        braked = self._brake is not None and self._brake.is_on(task)
        return not (braked or self._is_full())

    def _hold(self, request: Any) -> None:
        size = len(request.body) if isinstance(request.body, (bytes, str)) else 0
        with self._lock:
            raised = self._raise_prefetch(size) if not self._is_full() else 0
            self._held.append(_Held(request, self._monotonic(), raised, size))

    def _raise_prefetch(self, size: int) -> int:
        if sum(held.raised for held in self._held) >= self._spare:
            return 0
        if size + sum(held.size for held in self._held) > HELD_BYTES:
            return 0
        qos = self._consumer.qos
        before = qos.value
        return int(qos.increment_eventually() - before)

    def _on_end(self, task: str, brake: Brake, result: tuple[Any, Any, Any]) -> None:
        failed, einfo, _runtime = result
        if not failed:
            self._notify_brake(brake.succeeded, task)
        elif reported(einfo).for_error:
            self._notify_brake(brake.failed, task)

    def _notify_brake(self, event: Callable[[str], None], task: str) -> None:
        try:
            event(task)
        except Exception:
            logger.exception("celery_dlq's brake failed")

    def _look_after_probes(self) -> None:
        for task, request in list(self._probes.items()):
            # Compared by identity: its retry may be here already, under the same id.
            if request not in state.reserved_requests and self._brake is not None:
                del self._probes[task]
                self._brake.probe_ended(task)

    def _freed(self) -> list[tuple[_Held, Callable[[Any], object]]]:
        """The requests that are no longer held, each with the function that gets it next."""
        now, full = self._monotonic(), self._is_full()
        freed: list[tuple[_Held, Callable[[Any], object]]] = []
        kept: list[_Held] = []
        with self._lock:
            for held in self._held:
                if not full and self._may_go(held.request):
                    freed.append((held, self._onward))
                elif now - held.since > self._hold_at_most_s:
                    freed.append((held, _give_back))
                else:
                    kept.append(held)
            self._held[:] = kept
        return freed

    def _may_go(self, request: Any) -> bool:
        task = request.type
        if self._brake is None or not self._brake.is_on(task):
            return True
        if request.id in state.revoked or request.maybe_expire():
            return True  # Celery drops it
        if not self._brake.take_probe(task):
            return False
        self._probes[task] = request
        return True

    def _let_go(self, freed: tuple[_Held, Callable[[Any], object]]) -> None:
        held, act = freed
        try:
            if held.raised:
                self._consumer.qos.decrement_eventually(held.raised)
            act(held.request)
        except Exception:
            logger.exception("celery_dlq could not let go of %s", held.request)


def _give_back(request: Any) -> None:
    request.reject(requeue=True)
    state.task_ready(request)


def announce(change: Braked | Released) -> None:
    """Log a change of the brake."""
    if isinstance(change, Released):
        logger.info(
            "brake released for %s: it has succeeded, after %.0f s (failed runs: %d, probes: %d)",
            change.task, change.after_s, change.failures, change.probes,
        )  # fmt: skip
    elif change.probes:
        logger.warning(
            "brake still on for %s: probe %d failed, the next is in %.0f s",
            change.task, change.probes, change.pause_s,
        )  # fmt: skip
    else:
        logger.warning(
            "brake on for %s: %d failed runs and no success; its messages are held, one is tried in %.0f s",
            change.task, change.failures, change.pause_s,
        )  # fmt: skip
