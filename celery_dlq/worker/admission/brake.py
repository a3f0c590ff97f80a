"""Decides when to stop running a task that only fails, and when to try it again. It does not know Celery, and
its clock is passed in."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Limits:
    """When the brake engages, and how long it pauses. Times are in seconds."""

    failures: int
    window_s: float
    pause_s: float
    pause_max_s: float


@dataclass(frozen=True)
class Braked:
    """The task is not run from now on. If ``probes`` > 0, it was braked before, and a probe has failed."""

    task: str
    failures: int
    probes: int
    pause_s: float


@dataclass(frozen=True)
class Released:
    """The task has succeeded and runs again."""

    task: str
    failures: int
    probes: int
    after_s: float


Announce = Callable[[Braked | Released], object]


@dataclass
class _Suspect:
    """A task that has failed since its last success."""

    latest: deque[float]
    failures: int = 0
    braked_at: float | None = None
    pause_s: float = 0.0
    probe_from: float = 0.0
    probing: bool = False
    probes: int = 0


@dataclass
class Brake:
    """Counts failed runs and successes by task; safe to call from any thread.

    A task is braked after ``limits.failures`` failed runs within ``limits.window_s`` and no success between
    them. Then one message at a time is tried, a *probe*: a success releases the task, a failure doubles the
    pause until the next probe. A brake knows one worker and holds its messages; the circuit breaker
    (:mod:`celery_dlq.worker.admission.breaker`) is shared by all workers and parks them.
    """

    limits: Limits
    announce: Announce
    monotonic: Callable[[], float]
    _suspects: dict[str, _Suspect] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def failed(self, task: str) -> None:
        """A run of ``task`` has failed: its message is a letter, or retried."""
        with self._lock:
            suspect = self._suspects.get(task)
            if suspect is None:
                suspect = self._suspects[task] = _Suspect(deque(maxlen=self.limits.failures))
            change = self._after_failure(task, suspect, self.monotonic())
        if change is not None:
            self.announce(change)

    def succeeded(self, task: str) -> None:
        """A message of ``task`` has succeeded."""
        if task not in self._suspects:  # as in nearly every call
            return
        with self._lock:
            suspect = self._suspects.pop(task, None)
            now = self.monotonic()
        if suspect is not None and suspect.braked_at is not None:
            after_s = now - suspect.braked_at
            self.announce(Released(task, suspect.failures, suspect.probes, after_s))

    def is_on(self, task: str) -> bool:
        """Whether messages of ``task`` are to be held."""
        suspect = self._suspects.get(task)
        return suspect is not None and suspect.braked_at is not None

    def take_probe(self, task: str) -> bool:
        """Whether a message of ``task`` is to be tried now; if so, no other one until it has ended."""
        with self._lock:
            suspect = self._suspects.get(task)
            if suspect is None or suspect.braked_at is None or suspect.probing:
                return False
            if self.monotonic() < suspect.probe_from:
                return False
            suspect.probing = True
            suspect.probes += 1
            return True

    def probe_ended(self, task: str) -> None:
        """The probe is over. If it neither succeeded nor failed, for example because it raised ``Ignore``,
        another one follows after the same pause."""
        with self._lock:
            suspect = self._suspects.get(task)
            if suspect is not None and suspect.probing:
                self._pause(suspect, suspect.pause_s)

    def status(self) -> Mapping[str, Mapping[str, Any]]:
        """The braked tasks, each with its failed runs, its probes, and the seconds since it was braked."""
        with self._lock:
            now = self.monotonic()
            return {
                task: {
                    "failures": suspect.failures,
                    "probes": suspect.probes,
                    "for_s": round(now - suspect.braked_at, 1),
                }
                for task, suspect in self._suspects.items()
                if suspect.braked_at is not None
            }

    def _after_failure(self, task: str, suspect: _Suspect, now: float) -> Braked | None:
        suspect.failures += 1
        suspect.latest.append(now)
        if suspect.braked_at is None:
            if not self._reaches_limit(suspect.latest):
                return None
            suspect.braked_at = now
            self._pause(suspect, self.limits.pause_s)
        elif suspect.probing:
            self._pause(suspect, min(2 * suspect.pause_s, self.limits.pause_max_s))
        else:  # a run that began before the brake
            return None
        return Braked(task, suspect.failures, suspect.probes, suspect.pause_s)

    def _reaches_limit(self, latest: deque[float]) -> bool:
        return len(latest) == latest.maxlen and latest[-1] - latest[0] <= self.limits.window_s

    def _pause(self, suspect: _Suspect, pause_s: float) -> None:
        suspect.probing = False
        suspect.pause_s = pause_s
        suspect.probe_from = self.monotonic() + pause_s
