"""What a dead-letter store can do, and the values it is asked with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from celery_dlq.circuit import Circuit, CircuitChange, Circuits
from celery_dlq.delivery import Delivery
from celery_dlq.group import ANY_GROUP, Group, GroupAct, GroupFilter
from celery_dlq.letter import DeadLetter, Explanation, Outcome
from celery_dlq.states import Reason, State
from celery_dlq.store.filter import Filter
from celery_dlq.store.measures import Cell, Measures
from celery_dlq.store.redrives import (
    AuditRow,
    Change,
    Claim,
    Edit,
    Home,
    Operation,
    Redrives,
    Rows,
)

__all__ = [
    "NO_COPY",
    "AuditRow",
    "Cell",
    "Change",
    "Claim",
    "Edit",
    "Filter",
    "Group",
    "Home",
    "Lease",
    "Measures",
    "NewVerdict",
    "Operation",
    "Page",
    "Redrives",
    "Release",
    "Rows",
    "Saved",
    "Stats",
    "Store",
]


@dataclass(frozen=True, kw_only=True)
class Page:
    """Letters newest first, and the cursor of the next page (None on the last one)."""

    letters: tuple[DeadLetter, ...]
    next: str | None
    #: When looking was given up: the last failure of the last letter that was looked at. Older ones may
    #: match, too, and ``next`` goes on with them.
    searched_to: datetime | None = None


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


@dataclass(frozen=True, kw_only=True)
class Lease:
    """What one worker at a time holds, until it expires."""

    name: str
    #: Goes up with every new holder: who still has a lower one has lost it.
    token: int


@dataclass(frozen=True, kw_only=True)
class Release:
    """A parked retry that is due, as one copy of its message."""

    parking: str
    #: 1-based. A second copy is sent when it is not known whether the first one was.
    copy: int
    letter: DeadLetter


#: The copy of a release that stands for the message itself, delivered again.
NO_COPY = 0


@dataclass(frozen=True, kw_only=True)
class Saved:
    """What a save did: letters that were new or died again, and copies that were known already."""

    arrived: int
    known: int
    #: Those that arrived, as they are kept.
    letters: tuple[DeadLetter, ...] = field(default=(), compare=False, repr=False)
    #: Groups whose first letters these were.
    new_groups: tuple[Group, ...] = field(default=(), compare=False)
    #: Groups that these letters opened again: they were resolved, or their ignoring has run out.
    regressed_groups: tuple[Group, ...] = field(default=(), compare=False)


@dataclass(frozen=True, kw_only=True)
class NewVerdict:
    """Another judgement of a letter's last failure."""

    task_id: str
    #: When that failure was: a letter that has failed again since is not touched.
    failed_at: datetime
    explanation: Explanation


class Store(Redrives, Protocol):
    """A dead-letter store. Every method is one transaction (``discard`` and ``undiscard`` are several,
    each whole in itself) and may be repeated.

    All raise :class:`~celery_dlq.errors.StoreUnavailable` when the database does not answer and
    :class:`~celery_dlq.errors.SchemaError` when its schema does not fit.
    """

    def check_schema(self) -> None:
        """Check (on SQLite: create) the schema; raises ``SchemaError``."""

    def save(self, letters: Sequence[DeadLetter]) -> Saved:
        """Record failures, and forget their messages' deliveries. Idempotent under repetition, in any
        order, from many writers."""

    def record_outcomes(self, outcomes: Sequence[Outcome]) -> int:
        """Resolve the letters whose messages succeeded, and forget the messages' deliveries; returns
        how many were open."""

    def deliveries(self, task_id: str, task: str) -> tuple[Delivery, ...]:
        """What is remembered of the deliveries of ``task`` under ``task_id``, over all redrives, oldest
        first. Two apps that share a store may use the same id."""

    def put_delivery(self, delivery: Delivery) -> None:
        """Remember ``delivery``, in the place of what is known of it (its redrive, attempt and start)."""

    def forget_deliveries(self, known: Sequence[Delivery]) -> None:
        """Forget just these: their runs ended."""

    def prune_deliveries(self, before: datetime) -> int:
        """Forget the deliveries that were started before ``before``; returns how many."""

    def get(self, task_id: str) -> DeadLetter | None:
        """The letter with its attempts, or None. A retry of it that is parked sets ``due_at``; where
        nothing has died yet, the parked retry is the letter."""

    def read_letters(self, task_ids: Sequence[str]) -> tuple[list[DeadLetter], int]:
        """The letters of the first of ``task_ids``, in their order, with their messages but without
        attempts and tracebacks; and of how many of these they are: as many as have 16 MiB of bodies
        together, and one at least. What is gone is left out."""

    def match_ids(self, prefix: str, limit: int = 10) -> list[str]:
        """Up to ``limit`` task ids that begin with ``prefix``."""

    def find(
        self,
        wanted: Filter,
        *,
        limit: int = 50,
        after: str | None = None,
        patience_s: float | None = None,
    ) -> Page:
        """A page of letters, newest failure first, without their attempts, tracebacks, bodies, headers
        and properties. ``after`` is the mark of the page before; raises ``FilterError`` when it is
        none. A text or a worker is looked for in one letter after the other: for about ``patience_s``
        seconds, then the page says how far; with None until the page is full, or no letter is left."""

    def count(self, wanted: Filter) -> int:
        """How many letters match."""

    def count_by_task(self, wanted: Filter) -> Mapping[str, int]:
        """How many letters of each task match, most first."""

    def groups(
        self,
        wanted: Filter,
        *,
        now: datetime,
        limit: int = 50,
        after: str | None = None,
        which: GroupFilter = ANY_GROUP,
    ) -> list[Group]:
        """Groups with open letters, most open letters first. They can be narrowed by task, exception,
        group, since and until (of the last failure in the group); raises ``FilterError`` for others.
        A group that was to be ignored until a time before ``now`` is open. ``after`` is the cursor of the
        :class:`~celery_dlq.store.group_mark.GroupMark` of a group that the list is to go on behind."""

    def group(self, fingerprint: str, *, now: datetime) -> Group | None:
        """The group with this fingerprint, or None."""

    def match_groups(self, prefix: str, limit: int = 10) -> list[str]:
        """Up to ``limit`` fingerprints that begin with ``prefix``."""

    def group_trends(
        self, fingerprints: Sequence[str], *, now: datetime, hours: int = 24
    ) -> Mapping[str, tuple[int, ...]]:
        """Arrivals in each group by the hour, the oldest first; the last is the hour of ``now``."""

    def triage(self, fingerprint: str, act: GroupAct, *, who: str, now: datetime) -> Group:
        """Do ``act`` with a group; audited. Raises ``UnknownGroup`` when there is none."""

    def stats(self, now: datetime) -> Stats:
        """Depth, arrivals, ages."""

    def measures(self) -> Measures:
        """The store in numbers, for monitoring. Never a scan of the letters."""

    def oldest(self, wanted: Filter) -> datetime | None:
        """When the letter of ``wanted`` failed last that waits longest; None when there is none."""

    def count_arrivals(self, wanted: Filter, *, since: datetime, until: datetime) -> int:
        """How many letters died, for the first time or again, in the minutes from ``since`` until
        ``until``. They can be narrowed by task and exception; raises ``FilterError`` for others."""

    def discard(self, wanted: Filter, *, who: str, why: str, now: datetime) -> int:
        """Close ``DEAD`` (or, when named, ``REDRIVEN`` or ``PARKED``) letters for good; audited. Letters
        that die while it runs are not swept in."""

    def undiscard(self, wanted: Filter, *, who: str, now: datetime) -> int:
        """Open discarded letters again; audited."""

    def park(self, letters: Sequence[DeadLetter], *, now: datetime) -> int:
        """Keep ``PARKED`` letters until they are due, and forget their messages' deliveries; returns how
        many were new. ``now`` is the time by the clock that set their ``due_at``."""

    def take_lease(self, name: str, *, holder: str, seconds: float) -> Lease | None:
        """Take, or prolong, what only one ``holder`` has at a time; None while another one has it."""

    def give_up_lease(self, lease: Lease) -> None:
        """Let the next one take it at once."""

    def take_due(
        self, lease: Lease, place: str, *, limit: int, hold_s: float
    ) -> tuple[Release, ...]:
        """Up to ``limit`` parked retries of ``place`` that are due, the most overdue first; none when
        ``lease`` is lost. For ``hold_s`` seconds nobody takes them again; after that, what is not
        confirmed is taken once more."""

    def confirm_releases(self, releases: Sequence[Release]) -> None:
        """The broker has their messages: they are parked no longer."""

    def put_off(self, releases: Sequence[Release], *, delay_s: float) -> None:
        """Not sent: they may be taken again after ``delay_s`` seconds."""

    def accept_releases(self, copies: Sequence[tuple[str, int]]) -> list[bool]:
        """For each release and its copy, whether a worker may run that copy: no other copy was accepted.
        The same answer however often the same copy is asked for."""

    def take_back(self, beginning: str, *, exact: bool) -> bool:
        """Whether a message may run that came back to its worker, and was perhaps parked under a name with
        this ``beginning``. What is parked of it will not run then. ``exact`` says that no other message
        has such names."""

    def next_due(self, place: str) -> float | None:
        """Seconds until a parked retry of ``place`` may be taken, below zero when it is overdue; None
        when none waits."""

    def overdue(self, by_s: float) -> int:
        """How many parked retries were due so many seconds ago and are not sent."""

    def prune_releases(self, *, older_than_s: float) -> int:
        """Forget what was released so many seconds ago, so that another copy would run; returns how
        many."""

    def make_due(self, wanted: Filter, *, place: str, who: str, now: datetime) -> int:
        """Let parked retries be due now, at ``place``, wherever they were parked; audited. The states
        of ``wanted`` do not count. What is being sent is left alone."""

    def open_circuits(self) -> Circuits:
        """The circuits that are not closed, the latest thousand."""

    def change_circuits(
        self, changes: Mapping[tuple[str, str], CircuitChange]
    ) -> tuple[Circuit, ...]:
        """Apply ``changes``, by task and key, one worker at a time; returns the circuits as they are then.
        A change may be applied more than once before it is kept."""

    def prune_circuits(self, *, older_than_s: float) -> int:
        """Forget the circuits that nothing happened to for so many seconds; returns how many."""

    def reclassify(
        self, changes: Sequence[NewVerdict], *, wanted: Filter, who: str, now: datetime
    ) -> int:
        """Store other judgements of letters, found by ``wanted``; audited. Returns how many were still
        about the same failure."""

    def record_act(
        self, *, who: str, act: str, detail: Mapping[str, object], count: int, now: datetime
    ) -> int:
        """Write an audit row for an operator's act that is not one of the above, on ``count`` letters;
        returns its id."""

    def add_to_act(self, audit_id: int, more: int) -> None:
        """The act of that row was about ``more`` letters than it says."""

    def close(self) -> None:
        """Give the connections back."""
