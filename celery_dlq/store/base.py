"""The values that go into a dead-letter store and come out of it, except letters and groups; and how many
letters one transaction takes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Generic, TypeVar

from celery_dlq.errors import StoreUnavailable
from celery_dlq.model.automation import AutoState
from celery_dlq.model.group import Group
from celery_dlq.model.handling import HandlingState, TicketKind
from celery_dlq.model.letter import DeadLetter, Envelope, Explanation
from celery_dlq.model.operation import Counts, OperationState, Orders, SendingState
from celery_dlq.model.states import Reason, State
from celery_dlq.model.worker import CircuitState
from celery_dlq.store.filter import Argument as Argument  # asked for together with these
from celery_dlq.store.filter import Filter as Filter

T = TypeVar("T")

#: Letters written in one transaction.
BATCH_SIZE = 500


@dataclass(frozen=True, kw_only=True)
class Page:
    """Letters newest first, and the cursor of the next page (None on the last one)."""

    letters: tuple[DeadLetter, ...]
    next: str | None
    #: If the search stopped before the page was full: the last failure of the last letter that was searched.
    #: Older letters may match, too; ``next`` continues with them.
    searched_to: datetime | None = None
    #: If the search stopped: letters from further back that indexes know to match, newest first. There may be
    #: others between them, so ``next`` does not continue after them.
    further: tuple[DeadLetter, ...] = ()


def pages(find: Callable[..., Page], wanted: Filter, size: int) -> Iterator[Page]:
    """All pages of the letters of ``wanted``, newest failure first.

    :param find: :meth:`~celery_dlq.store.letters.records.Letters.find`.
    :param size: letters per page.
    """
    page = find(wanted, limit=size)
    yield page
    while page.next is not None:
        page = find(wanted, limit=size, after=page.next)
        yield page


@dataclass(frozen=True, kw_only=True)
class Stats:
    """The store at a glance."""

    depth: int
    by_state: Mapping[State, int]
    by_task: Mapping[str, int]
    by_exception: Mapping[str, int]
    by_reason: Mapping[Reason, int]
    #: Arrivals in each of the last 24 hours, oldest first.
    arrivals: tuple[int, ...]
    oldest_open_at: datetime | None
    #: Open letters by age: upper bound in seconds (inf for the rest) to count.
    ages: Mapping[float, int]
    #: Arrivals in an hour on average, over the six days before the last one; None if nothing arrived then.
    usual: float | None = None
    #: Open letters that automatic redrives leave to a person.
    held: int = 0


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Counts of the letters with the same task, queue, reason and exception type."""

    task: str
    queue: str
    reason: Reason
    exception_type: str
    open: int
    #: These never fall: how often letters died (with the reason ``unsent``: began to wait), and how many of
    #: their redrives succeeded or failed.
    arrived: int
    succeeded: int
    failed: int
    #: When the first of them died.
    first_seen_at: datetime


@dataclass(frozen=True)
class Number:
    """A number of letters."""

    count: int
    #: Whether there are more than ``count``.
    more: bool = False


@dataclass(frozen=True, kw_only=True)
class TypeCount:
    """The letters with the same exception type, about which the same rule decided."""

    exception_type: str
    rule: str
    letters: int
    #: How many of them are open.
    open: int
    #: The newest of them: its id, the evidence of its verdict, and its last failure.
    task_id: str
    evidence: str
    last_failed_at: datetime
    #: How many redrives of letters with this exception type succeeded or failed, whichever rule decided.
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, kw_only=True)
class UnsentAt:
    """The messages that one broker did not take, and that wait to be sent to it."""

    #: Names the broker: see :class:`~celery_dlq.worker.broker_limits.Hold`.
    place: str
    messages: int
    #: When the oldest could not be sent.
    since: datetime


@dataclass(frozen=True, kw_only=True)
class Measures:
    """The numbers of a store at one moment. All are read from rollups, or from few rows."""

    cells: tuple[Cell, ...]
    #: Open letters by state.
    open: Mapping[State, int]
    oldest_open_at: datetime | None
    #: Parked messages, and the retries among them that are due but were not released.
    parked: int
    overdue: int
    #: By the broker.
    unsent: tuple[UnsentAt, ...]
    operations: Mapping[OperationState, int]
    #: When an operation was last aborted, by its guard or by an error.
    aborted_at: datetime | None
    #: Runs that ended their worker process, of messages that may be delivered again.
    deaths: int
    #: Circuits that are not closed, by task and state.
    circuits: Mapping[tuple[str, CircuitState], int]
    #: Letters that wait for a handler, or that it failed to handle, by handler and state.
    handlings: Mapping[tuple[str, HandlingState], int]
    #: Groups with open letters that have a ticket or an escalation.
    tickets: Mapping[TicketKind, int]
    #: The states of automations, by name.
    auto_redrives: Mapping[str, AutoState]
    #: Letters that automatic redrives chose within the last day, by name and the state of their sending.
    auto_letters: Mapping[tuple[str, SendingState], int]
    #: Open letters that only a person redrives, by the automatic redrive that held them.
    held: Mapping[str, int]
    #: Open letters of each route that has some.
    routes: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A right that one worker at a time has, until it expires."""

    name: str
    #: Increases with every new holder: a holder with a lower token has lost the lease.
    token: int


@dataclass(frozen=True, kw_only=True)
class LetterKey:
    """A closed letter at one moment. If it has failed or was reopened since then, it has another key."""

    #: As stored.
    task_id: str
    last_failed_at: datetime
    closed_at: datetime


@dataclass(frozen=True, kw_only=True)
class Expiry:
    """Closed letters, and the moment before which they must have been closed to expire."""

    where: Filter
    #: None: they never expire.
    before: datetime | None


@dataclass(frozen=True, kw_only=True)
class HistoryBounds:
    """The moments before which history is deleted; None: never."""

    #: For operations and their redrives, changes of messages, and acts of handlers and automatic redrives.
    history: datetime | None
    #: For the counts of letters over time.
    arrivals: datetime | None
    #: For the acts of people.
    audit: datetime | None


@dataclass(frozen=True, kw_only=True)
class ValuesKept:
    """Which letters can be found by their values."""

    #: Whether values are kept at all: see ``dlq_search_values``.
    are_kept: bool
    #: Letters that failed first then or earlier may still lack their values; None if all have them.
    since: datetime | None


@dataclass(frozen=True, kw_only=True)
class ToDo:
    """Whether a worker's upkeep has work."""

    #: Seconds until the lease may be taken; 0 if it is free.
    lease_free_in_s: float
    #: Whether operations run, or wait for a worker.
    operations: bool


@dataclass(frozen=True, kw_only=True)
class Scope:
    """An automation, as the store chooses letters for it."""

    name: str
    #: The letters that it gets, as far as they are dead.
    where: Filter
    #: Of the handler. It gets each failure of a letter once. Empty for an automatic redrive.
    version: str = ""
    #: Whether it gets one letter of each group.
    once_per_group: bool = False


@dataclass(frozen=True, kw_only=True)
class Release:
    """A parked retry that is due, as one copy of its message."""

    parking: str
    #: 1-based. A second copy is sent if it is unknown whether the first one was.
    copy: int
    letter: DeadLetter


#: Seconds for which a message that its sender may have sent waits in the store before it is sent again. Until
#: then, every worker has said whether it took the message: workers ask every 20 seconds, or more often.
DOUBT_S = 60.0

#: Seconds after which a parked retry that is due counts as overdue. A worker looks for due ones every few
#: seconds; by then, a dead worker's lease and an interrupted release have expired twice.
PARKED_OVERDUE_S = 300.0

#: The copy of a release that stands for the message itself, delivered again.
NO_COPY = 0


@dataclass(frozen=True, kw_only=True)
class Saved:
    """The result of a save: letters that were new or died again, and copies that were known already."""

    arrived: int
    known: int
    #: The letters that arrived, as they are stored.
    letters: tuple[DeadLetter, ...] = field(default=(), compare=False, repr=False)
    #: Groups whose first letters these were.
    new_groups: tuple[Group, ...] = field(default=(), compare=False)
    #: Groups that these letters reopened: they were resolved, or the time for which they were ignored is
    #: over.
    regressed_groups: tuple[Group, ...] = field(default=(), compare=False)


@dataclass(frozen=True, kw_only=True)
class NewVerdict:
    """A new verdict on a letter's last failure."""

    task_id: str
    #: The time of that failure. A letter that has failed again since then is not changed.
    failed_at: datetime
    explanation: Explanation


@dataclass(frozen=True, kw_only=True)
class AppAndBroker:
    """The app and the broker of an operation. A field is empty if it is unknown."""

    #: The name of the Celery app.
    app: str = ""
    #: The address of its broker, without the password.
    broker: str = ""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One redrive: which letters, how, and how far it has come."""

    #: 12 hexadecimal digits.
    id: str
    #: Its ``until`` is the cut-off: letters that fail later are not taken.
    wanted: Filter
    orders: Orders
    state: OperationState = OperationState.PLANNED
    #: Why it was paused, cancelled or aborted.
    cause: str = ""
    counts: Counts
    #: The person who gave the orders, and the machine and process in which the operation was made.
    who: str
    host: str
    home: AppAndBroker = AppAndBroker()
    namespace: str = ""
    #: Whether it is left to workers.
    detached: bool = False
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    #: How many messages were sent again because they had vanished.
    sent_again: int = 0
    #: Why its filter and its orders cannot be decrypted here, so that it cannot run; empty if they can be.
    unreadable: str = ""

    @property
    def lease_name(self) -> str:
        """The lease of the process that runs it."""
        return f"operation.{self.id}"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Letters that one redrive holds until its lease ends."""

    token: str
    letters: tuple[DeadLetter, ...]


@dataclass(frozen=True, kw_only=True)
class Overdue:
    """A sending whose outcome is overdue: its message waits somewhere, runs, or has vanished."""

    operation: str
    task_id: str
    #: The task that failed last; a repair may have sent the message to another one.
    task: str
    redrive: int
    #: The queue that its letter names; empty if it is unknown.
    queue: str
    #: The copy that a worker has accepted; None if no worker has accepted any.
    accepted: str | None
    #: How often it was sent again.
    sent_again: int
    claimed_at: datetime


@dataclass(frozen=True)
class Drop:
    """A redriven message that a worker has dropped on purpose."""

    task_id: str
    redrive: int
    copy: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A letter's message as a person has changed it."""

    task_id: str
    #: The message that was edited: if another edit came first, that one stays.
    before: Envelope
    after: Envelope
    #: Display copies of the new arguments.
    args: Any
    kwargs: Any
    #: Lines of a diff.
    diff: str
    who: str
    #: Why, in that person's words.
    why: str = ""
    at: datetime
    #: The release of the code (``dlq_release``) for which the new message is.
    release: str = ""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One entry in the history of a letter's message."""

    task_id: str
    at: datetime
    who: str
    how: str
    diff: str
    #: The message as it was.
    before: Envelope


#: The names of acts in the audit: those of people, and of automatic redrives.
ACTS = (
    "redrive", "pause", "resume", "cancel", "abort", "edit", "unpark", "discard", "undiscard",
    "reclassify", "ingest", "import", "drain", "recover", "ignore", "resolve", "reopen", "note", "assign",
    "suspend", "hold", "run", "ticket", "escalate", "delete", "expire", "archive", "verify", "restore",
    "forget", "regroup", "merge", "split", "rotate", "request", "approve", "refuse", "deny",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AuditRow:
    """An act of a person."""

    id: int
    at: datetime
    who: str
    #: The machine from which it was done.
    host: str
    act: str
    namespace: str = ""
    #: How many letters it was about.
    count: int
    why: str
    #: The filter, the operation or the letter; for a repair also its changes, and ``changed``: the
    #: changes that it made in the one letter of the act.
    detail: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class OngoingAct:
    """An act that is done in several transactions. Each transaction adds its letters to the act's one row in
    the audit. So an act that is cut off is recorded as far as it went."""

    who: str
    act: str
    why: str = ""
    #: The subject of the act.
    detail: Mapping[str, Any]
    #: When it began.
    at: datetime
    #: The id of its row; None before the first letters.
    row: int | None = None


@dataclass(frozen=True, kw_only=True)
class Rows(Generic[T]):
    """Rows of a list, and the cursor of the next ones (None at the end)."""

    rows: tuple[T, ...]
    next: str | None

    @classmethod
    def first(cls, found: Sequence[T], limit: int, mark: Callable[[T], object]) -> Rows[T]:
        """The first ``limit`` rows of ``found``, which has one more row unless these are the last.

        :param mark: gives the place of a row, after which the next call continues.
        """
        more = len(found) > limit > 0
        return cls(rows=tuple(found[:limit]), next=str(mark(found[limit - 1])) if more else None)


#: The version of the format of a line.
LINE_FORMAT = 1


class SegmentState(str, Enum):
    """Whether the file of a segment counts, and where its letters come from."""

    #: The file does not count: it is being written, its writer was killed, or another segment has replaced
    #: it. Its letters are in the store, or in another segment.
    LEFTOVER = "leftover"
    #: The letters were deleted from this store.
    OWN = "own"
    #: Another store made the file, or this one, before it was restored from a backup.
    ADOPTED = "adopted"


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts about the file of a segment."""

    letters: int
    #: Bytes of the file, and its hash in hexadecimal digits.
    size: int
    sha256: str
    #: The earliest and the latest moment at which one of its letters failed last.
    first_failed_at: datetime
    last_failed_at: datetime


@dataclass(frozen=True, kw_only=True)
class Segment(Facts):
    """A file of the archive, as its row in the store describes it."""

    #: ``<time>-<random>``; see docs/reference/archive_format.md.
    id: str
    state: SegmentState
    archived_at: datetime

    @property
    def counts(self) -> bool:
        """Whether its letters are in the archive."""
        return self.state is not SegmentState.LEFTOVER


@dataclass(frozen=True, kw_only=True)
class Restored:
    """The result of a restore: task ids of letters that came back, and of those that the store has."""

    restored: tuple[str, ...]
    living: tuple[str, ...]


#: The fewest letters that are still tried when transactions take too long.
FEWEST = 25


class Portion:
    """The number of letters that one transaction takes. It becomes smaller when a transaction takes too long,
    and stays so.

    :param size: the number at the beginning.
    """

    def __init__(self, size: int) -> None:
        self.size: int = size

    def attempt(self, transaction: Callable[[int], T]) -> T:
        """The result of ``transaction``, which is given the number of letters to take. It is tried again with
        fewer letters if the store does not answer in time.

        :raises StoreError: the store failed, or does not answer in time for the fewest letters.
        """
        while self.size > FEWEST:
            with contextlib.suppress(StoreUnavailable):
                return transaction(self.size)
            self.size = max(FEWEST, self.size // 4)
        return transaction(self.size)


#: The share of the time in which long work uses the store, at most. It pauses in between, so that other work
#: comes first.
SHARE = 0.25

#: Waits this many seconds; returns whether to stop.
Pause = Callable[[float], object]


class Pauses:
    """The pauses between the steps of long work.

    :param monotonic: measures how long the steps take, in seconds.
    """

    def __init__(self, pause: Pause, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._pause, self._monotonic, self._began = pause, monotonic, monotonic()

    def rest(self) -> bool:
        """Pause for as long as the share of the time asks after the work since the last pause. Returns
        whether to stop."""
        spent = self._monotonic() - self._began
        stops = self._pause(spent * (1 / SHARE - 1))
        self._began = self._monotonic()
        return bool(stops)
