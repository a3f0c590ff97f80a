"""An operation, the stored form of a redrive: how it sends, when it stops by itself, what it changes,
and its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from celery_dlq.base.codec import read_record, record_of


class OperationState(str, Enum):
    """The state of an operation."""

    #: Stored, and not started yet.
    PLANNED = "planned"
    #: A process is sending, or will continue after a crash.
    RUNNING = "running"
    #: Stopped by a person, or by an obstacle; a person can resume it.
    PAUSED = "paused"
    #: All planned letters were sent or skipped. Outcomes may still come in.
    DONE = "done"
    #: Ended by a person; letters that were not sent stay as they were.
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
    """The state of one letter in an operation."""

    #: Claimed, and maybe published.
    SENDING = "sending"
    #: The broker has it; its outcome is awaited.
    SENT = "sent"
    SUCCEEDED = "succeeded"
    #: It failed again: the same letter is dead again.
    FAILED = "failed"
    #: No outcome came in time: the message was lost, or its task does not report outcomes.
    UNKNOWN = "unknown"
    #: Not sent; the reason says why. The letter stays as it was.
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True)
class Pacing:
    """How fast an operation sends. Times are in seconds; None means no limit."""

    #: At most this many letters, the oldest failures first.
    limit: int | None = None
    #: Messages per second.
    rate: float | None = None
    #: This many letters, of every cause in turn, are sent first; the others only when all have succeeded.
    canary: int = 0
    #: Letters of one claim; None means the default of a redrive.
    batch: int | None = None
    #: Messages whose outcome is awaited at a time.
    max_in_flight: int | None = None
    #: Nothing is sent to a queue that already holds this many messages.
    max_queue_depth: int | None = None


@dataclass(frozen=True, kw_only=True)
class Guard:
    """When an operation stops by itself because its letters fail again."""

    enabled: bool = True
    #: The most messages sent ahead of their outcomes, so that the guard can still stop the rest. There are
    #: fewer at first.
    window: int = 500
    #: Abort at this share of failures among the outcomes, which count as at least this many.
    ratio: float = 0.2
    least: int = 20
    #: Abort when this many in a row have failed, in the order of their ends.
    in_a_row: int = 10


@dataclass(frozen=True, kw_only=True)
class Checking:
    """The checks of each letter before it is sent."""

    #: Skip letters that were redriven this many times; None sends them, too.
    max_redrives: int | None = 3
    #: Skip letters whose last failure is older than this, in seconds.
    max_age_s: float | None = None
    #: Skip letters that failed in this release of the code.
    unless_release: str | None = None


#: Fields of :class:`Pacing` and :class:`Checking` that operations of release 1.0 have in the store.
_REMOVED = frozenset({"ramp_s", "validate", "validate_timeout_s"})


@dataclass(frozen=True, kw_only=True)
class Repair:
    """The changes to each message. The letter keeps the original."""

    #: Assignments as they were given, such as ``kwargs.currency="USD"``, applied in order.
    assignments: tuple[str, ...] = ()
    #: The name of a repair of the app (``@dlq.repair``), called after the assignments.
    function: str | None = None
    to_queue: str | None = None
    to_task: str | None = None
    #: When a worker may run it: seconds after it was sent, or a time.
    countdown_s: float | None = None
    eta: datetime | None = None
    priority: int | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The changes that were ordered, by name."""
        return {name: value for name, value in vars(self).items() if value not in (None, ())}


@dataclass(frozen=True, kw_only=True)
class Orders:
    """All instructions of an operation, except the choice of letters."""

    pacing: Pacing = field(default_factory=Pacing)
    guard: Guard = field(default_factory=Guard)
    checking: Checking = field(default_factory=Checking)
    repair: Repair = field(default_factory=Repair)
    #: The operator's reason.
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form."""
        return record_of(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Orders:
        """The inverse of :meth:`to_dict`. Orders that earlier releases knew are left out."""
        known = {
            part: {name: value for name, value in data[part].items() if name not in _REMOVED}
            for part in ("pacing", "checking")
            if part in data
        }
        return read_record(cls, {**data, **known})


#: The default orders.
DEFAULT_ORDERS = Orders()


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The number of an operation's letters in each state."""

    #: Letters that matched when the operation was made, up to its limit.
    planned: int = 0
    sending: int = 0
    sent: int = 0
    succeeded: int = 0
    failed: int = 0
    unknown: int = 0
    skipped: int = 0
    #: Letters of :attr:`out` that are not marked as sent yet: their outcomes came before the mark.
    unmarked: int = 0
    #: Letters of :attr:`sending` that no process holds any more: its claim ended before they were marked.
    left_behind: int = 0

    @property
    def out(self) -> int:
        """Letters that the broker has confirmed, with any outcome or none yet."""
        return self.sent + self.succeeded + self.failed + self.unknown

    @property
    def left(self) -> int:
        """Letters still to be sent, or skipped."""
        return max(0, self.planned - self.out - self.skipped)

    @property
    def unclaimed(self) -> int:
        """The letters in :attr:`left` that no process holds."""
        return max(0, self.left - self.in_hand)

    @property
    def all_failed(self) -> bool:
        """Whether every letter that was sent has failed again."""
        return 0 < self.failed == self.out

    @property
    def in_flight(self) -> int:
        """Letters whose outcome is awaited, or will be once they are sent."""
        return self.sent + self.in_hand

    @property
    def in_hand(self) -> int:
        """Letters that processes hold, or are about to claim."""
        return self.sending - self.left_behind

    def to_dict(self) -> dict[str, int]:
        """The numbers by the names for people; ``sent`` is the number that the broker has confirmed."""
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
    #: The number of the letter's redrive; with the task id, the key that a worker accepts once.
    redrive: int
    state: SendingState
    #: Why it was skipped, or the new failure.
    why: str = ""
    #: The fingerprint of the new failure.
    fingerprint: str = ""
    #: The change of the message, as lines of a diff; empty if there was none.
    change: str = ""
    sent_at: datetime | None = None
    ended_at: datetime | None = None
    #: How often its message was sent again because it had vanished, and when it was last.
    sent_again: int = 0
    sent_again_at: datetime | None = None
