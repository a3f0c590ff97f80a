"""Facts about workers: deliveries that have started, the circuits of tasks, stalls, and reports about the
messages of killed workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, TypeAlias

#: Begins the "cause of death" of a run whose own code gave the message back.
GIVEN_BACK = "given back by its task"


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """A delivery of a message whose run has started. It is forgotten when the run ends, unless the run ended
    with the death of its process, or gave the message back."""

    task_id: str
    #: Name of the task, because ids are not unique if two apps share a store.
    task: str
    #: Which redrive the message belongs to; 0 is the original message.
    redrive: int
    #: The attempt that the message asks for: Celery's ``retries`` + 1.
    attempt: int
    #: 1 for the first delivery, which is recorded only if a worker saw its process die.
    number: int
    started_at: datetime
    #: Node name of the worker, and an id of its parent process on its machine.
    worker: str
    process: str
    #: Whether nothing else ran in that worker.
    alone: bool = False
    #: The cause of death that the worker's parent saw; empty if the parent died, too.
    death: str = ""

    @property
    def is_to_blame(self) -> bool:
        """Whether only this message can have killed its process, if its run has no end."""
        return self.alone or bool(self.death)

    @property
    def is_given_back(self) -> bool:
        """Whether it ended, and its own code gave the message back. Such runs are counted by themselves."""
        return self.death.startswith(GIVEN_BACK)


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


@dataclass(frozen=True, kw_only=True)
class Stall:
    """A stall, as the stalled worker has seen it."""

    #: The name of the worker, such as ``celery@host``.
    worker: str
    #: When it first saw messages that it did not receive or run; it has received none after that.
    since: datetime
    #: When it was sure.
    noticed_at: datetime
    #: The queues in which messages wait, in alphabetical order, and the number of messages in all of them. No
    #: queues if the messages wait in the worker.
    queues: tuple[str, ...]
    messages: int

    @property
    def seconds(self) -> float:
        """How long it had received nothing when it was sure."""
        return (self.noticed_at - self.since).total_seconds()

    @property
    def what(self) -> str:
        """What the worker has done, for people."""
        if not self.queues:
            return (
                f"has kept {self.messages} message{'s' * (self.messages != 1)} for {self.seconds:.0f} s that "
                "it has free slots for"
            )
        waiting = f"{', '.join(self.queues)}: {self.messages}"
        return (
            f"has received nothing for {self.seconds:.0f} s, although it has free slots and messages wait "
            f"({waiting})"
        )

    def to_dict(self) -> dict[str, Any]:
        """For ``celery inspect stats``: JSON-able, the times in ISO 8601."""
        return {
            "since": self.since.isoformat(),
            "noticed_at": self.noticed_at.isoformat(),
            "queues": list(self.queues),
            "messages": self.messages,
        }


class ReportKind(str, Enum):
    """The kinds of reports about the flight recorder."""

    #: Messages of a killed worker that cannot be recovered, and why.
    STUCK = "stuck"
    #: Messages of a killed worker that the broker may still deliver again.
    WAITING = "waiting"
    #: A living worker that runs messages without a copy, and why.
    UNCOVERED = "uncovered"


@dataclass(frozen=True, kw_only=True)
class RecorderReport:
    """A worker's report about the flight recorder."""

    kind: ReportKind
    #: The directory or process that it is about. Several workers may report about the same directory.
    about: str
    #: The worker whose messages these are, and its machine; empty if they are unknown.
    worker: str
    host: str
    #: Messages; 0 if they cannot be counted.
    messages: int
    #: When the messages were accepted, or when the trouble began, by the clock of that machine.
    since: datetime
    why: str
    #: When it was last reported, by the clock of the store. Set by the store.
    seen_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class Lost:
    """The messages of killed workers, as far as the store knows them."""

    #: Open letters with the reason ``lost``.
    open: int
    #: Messages that became such letters within the last 24 hours.
    arrived: int
    #: The present reports of workers; the worst kinds first, then the oldest.
    reports: tuple[RecorderReport, ...]

    def of(self, *kinds: ReportKind) -> tuple[RecorderReport, ...]:
        """The reports of these kinds."""
        return tuple(one for one in self.reports if one.kind in kinds)


def messages_in(reports: Iterable[RecorderReport]) -> int:
    """How many messages ``reports`` are about."""
    return sum(one.messages for one in reports)
