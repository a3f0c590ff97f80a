"""A redrive as a thing of its own: how it is to send, when it stops by itself, what it changes, and where
it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import Enum
from typing import Any


class OperationState(str, Enum):
    """Where an operation is."""

    #: Written down; nobody has begun with it.
    PLANNED = "planned"
    #: Somebody sends, or will go on after a crash.
    RUNNING = "running"
    #: Stopped by a person, or by what kept it from going on; goes on when a person says so.
    PAUSED = "paused"
    #: All that was planned is sent or skipped. Outcomes may still come in.
    DONE = "done"
    #: Ended by a person; what was not sent is as it was.
    CANCELLED = "cancelled"
    #: Ended by its guard or by an error; the cause says which.
    ABORTED = "aborted"


#: Every move an operation may make. The store refuses all others.
MOVES: Mapping[OperationState, frozenset[OperationState]] = {
    OperationState.PLANNED: frozenset({
        OperationState.RUNNING, OperationState.PAUSED,
        OperationState.CANCELLED, OperationState.ABORTED,
    }),
    OperationState.RUNNING: frozenset({
        OperationState.PAUSED, OperationState.DONE,
        OperationState.CANCELLED, OperationState.ABORTED,
    }),
    OperationState.PAUSED: frozenset({OperationState.RUNNING, OperationState.CANCELLED}),
    OperationState.DONE: frozenset(),
    OperationState.CANCELLED: frozenset(),
    OperationState.ABORTED: frozenset(),
}  # fmt: skip

#: The states that no operation leaves.
ENDED = frozenset(state for state, targets in MOVES.items() if not targets)


class SendingState(str, Enum):
    """What became of one letter in an operation."""

    #: Claimed, and perhaps published.
    SENDING = "sending"
    #: The broker has it; its outcome is awaited.
    SENT = "sent"
    SUCCEEDED = "succeeded"
    #: It came back: the same letter, dead again.
    FAILED = "failed"
    #: No outcome came in time: the message was lost, or its task reports none.
    UNKNOWN = "unknown"
    #: Not sent; the reason says why. The letter is as it was.
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True)
class Pacing:
    """How fast an operation sends. Times are in seconds; None is no limit."""

    #: At most so many letters, the oldest failures first.
    limit: int | None = None
    #: Messages per second.
    rate: float | None = None
    #: For so long the rate grows evenly up to ``rate``.
    ramp_s: float = 0.0
    #: The first so many are sent alone; the others only when all of them have succeeded.
    canary: int = 0
    #: Letters of one claim; None is ``dlq_redrive_batch_size``.
    batch: int | None = None
    #: Messages whose outcome is awaited at a time.
    max_in_flight: int | None = None
    #: Nothing is sent to a queue that holds as many messages.
    max_queue_depth: int | None = None


@dataclass(frozen=True, kw_only=True)
class Guard:
    """When an operation stops by itself because its letters come back."""

    enabled: bool = True
    #: Messages sent ahead of their outcomes, so that a guard has something left to keep.
    window: int = 500
    #: Stop when so large a share of the outcomes are failures ...
    ratio: float = 0.2
    #: ... of at least so many outcomes.
    least: int = 20
    #: Stop when so many in a row have failed, by the time of their end.
    in_a_row: int = 10


@dataclass(frozen=True, kw_only=True)
class Checking:
    """What is checked of each letter before it is sent."""

    #: Not letters that were redriven so often; None sends them, too.
    max_redrives: int | None = 3
    #: Not letters whose last failure is older, in seconds.
    max_age_s: float | None = None
    #: Not letters that failed in this very release of the code.
    unless_release: str | None = None
    #: Run the task's body, or its ``validate()``, in a process of its own first.
    validate: bool = False
    validate_timeout_s: float = 30.0


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What is changed in each message. The letter keeps the original."""

    #: Assignments as they were given, such as ``kwargs.currency="USD"``, applied in order.
    assignments: tuple[str, ...] = ()
    #: ``module:function``, called after the assignments.
    transform: str | None = None
    to_queue: str | None = None
    to_task: str | None = None
    #: Seconds after its sending at which a worker may run it; or a point in time.
    countdown_s: float | None = None
    eta: datetime | None = None
    priority: int | None = None

    @property
    def changes(self) -> bool:
        """Whether anything is changed at all."""
        return any(getattr(self, item.name) not in (None, ()) for item in fields(self))


@dataclass(frozen=True, kw_only=True)
class Orders:
    """All that an operation was told, but for which letters it is about."""

    pacing: Pacing = field(default_factory=Pacing)
    guard: Guard = field(default_factory=Guard)
    checking: Checking = field(default_factory=Checking)
    repair: Repair = field(default_factory=Repair)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form."""
        eta = self.repair.eta
        return {
            "pacing": vars(self.pacing),
            "guard": vars(self.guard),
            "checking": vars(self.checking),
            "repair": {**vars(self.repair), "eta": eta and eta.isoformat()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Orders:
        """The inverse of :meth:`to_dict`."""
        repair = dict(data["repair"])
        eta = repair.pop("eta")
        return cls(
            pacing=Pacing(**data["pacing"]),
            guard=Guard(**data["guard"]),
            checking=Checking(**data["checking"]),
            repair=Repair(
                **{**repair, "assignments": tuple(repair["assignments"])},
                eta=None if eta is None else datetime.fromisoformat(eta),
            ),
        )


#: What an operation does that was told nothing.
DEFAULT_ORDERS = Orders()


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many letters of an operation are where."""

    #: Letters that the operation found when it was made, less those that a limit leaves.
    planned: int = 0
    sending: int = 0
    sent: int = 0
    succeeded: int = 0
    failed: int = 0
    unknown: int = 0
    skipped: int = 0

    @property
    def out(self) -> int:
        """Letters that the broker has confirmed, whatever became of them."""
        return self.sent + self.succeeded + self.failed + self.unknown

    @property
    def left(self) -> int:
        """Letters still to be sent, or skipped."""
        return max(0, self.planned - self.out - self.skipped)

    def to_dict(self) -> dict[str, int]:
        """The numbers by the names that people read; ``sent`` is all that the broker has confirmed."""
        return {
            "planned": self.planned,
            "sent": self.out,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "awaited": self.sent,
            "unknown": self.unknown,
            "skipped": self.skipped,
            "left": self.left,
        }


@dataclass(frozen=True, kw_only=True)
class Sending:
    """One letter in one operation."""

    operation: str
    task_id: str
    task: str
    #: Which redrive of its letter it is; with the task id, the key that a worker accepts once.
    redrive: int
    state: SendingState
    #: Why it was skipped, or what came back.
    why: str = ""
    #: Of the failure with which it came back.
    fingerprint: str = ""
    #: What was changed in the message, as lines of a diff; empty when nothing was.
    change: str = ""
    sent_at: datetime | None = None
    ended_at: datetime | None = None
