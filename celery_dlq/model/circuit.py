"""The state of the circuit breaker for a task, or for one key of it: whether its messages may run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, TypeAlias


class CircuitState(str, Enum):
    """The states of a circuit."""

    #: Messages run, and failures are counted.
    CLOSED = "closed"
    #: No message runs until the recovery time is over.
    OPEN = "open"
    #: One message runs, the probe; its outcome decides.
    HALF_OPEN = "half_open"


@dataclass(frozen=True, kw_only=True)
class Circuit:
    """One circuit. If transient failures open it, it is the same for all workers, and its times are the
    database's. If a worker opens it by itself, its times are by that worker's clock.

    Unknown circuits are closed: the defaults say so.
    """

    task: str
    #: The key of its messages within the task; empty for all messages of the task.
    key: str = ""
    state: CircuitState = CircuitState.CLOSED
    #: While it is closed: failures by the time when they were counted, in seconds since 1970.
    recent: tuple[tuple[float, int], ...] = ()
    #: How many failures opened it, and when.
    failures: int = 0
    opened_at: datetime | None = None
    #: Probes that have failed since.
    probes: int = 0
    #: While it is open: when a probe may run.
    probe_at: datetime | None = None
    #: While it is half open: which message runs, and until when it counts as running.
    probe: str = ""
    probe_until: datetime | None = None

    @property
    def name(self) -> str:
        """Its name for people."""
        return f"{self.task}[{self.key}]" if self.key else self.task

    def shown(self, *, messages: str) -> dict[str, Any]:
        """Its state for ``celery inspect stats``; ``messages`` says what happens to its messages."""
        return {
            "state": self.state.value,
            "failures": self.failures,
            "probes": self.probes,
            "messages": messages,
        }


#: The circuit after an event at the given time.
CircuitChange: TypeAlias = Callable[[Circuit, datetime], Circuit]


@dataclass(frozen=True, kw_only=True)
class Circuits:
    """The circuits that are not closed, at one moment."""

    now: datetime
    circuits: tuple[Circuit, ...]
