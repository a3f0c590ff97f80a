"""What a dead-letter store can do, and the values it is asked with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Protocol

from celery_dlq.delivery import Delivery
from celery_dlq.errors import FilterError
from celery_dlq.letter import DeadLetter, Outcome
from celery_dlq.states import OPEN_STATES, Reason, State


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which letters are meant. Empty fields do not restrict; all given ones must hold.

    ``task`` and ``exception`` take a full dotted name or its last part; ``group`` and ``worker``
    take a whole value or its beginning.
    """

    ids: tuple[str, ...] = ()
    task: str | None = None
    exception: str | None = None
    reason: Reason | None = None
    #: Reasons left out.
    without_reasons: frozenset[Reason] = frozenset()
    queue: str | None = None
    #: Empty means the open states.
    states: frozenset[State] = frozenset()
    group: str | None = None
    #: Bounds of the last failure: since inclusive, until exclusive.
    since: datetime | None = None
    until: datetime | None = None
    worker: str | None = None
    #: Text in message, exception type, task, or displayed arguments; case does not count (SQLite
    #: knows the case of ASCII letters only).
    search: str | None = None

    def __post_init__(self) -> None:
        if self.since and self.until and self.since >= self.until:
            raise FilterError(
                f"--since {self.since.isoformat()} is not before --until {self.until.isoformat()}; "
                "swap them or give only one."
            )

    @property
    def wanted_states(self) -> frozenset[State]:
        """The states asked for, the open ones when none was named."""
        return self.states or OPEN_STATES

    @property
    def restricts(self) -> bool:
        """Whether anything narrows the letters down."""
        return any(getattr(self, item.name) for item in fields(self))


@dataclass(frozen=True, kw_only=True)
class Page:
    """Letters newest first, and the cursor of the next page (None on the last one)."""

    letters: tuple[DeadLetter, ...]
    next: str | None


@dataclass(frozen=True, kw_only=True)
class Group:
    """Letters that share a fingerprint, as counted in the rollup."""

    fingerprint: str
    task: str
    exception_type: str
    #: A message of the group, as an example.
    message: str
    open_count: int
    total_count: int
    first_seen_at: datetime
    last_seen_at: datetime


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
class Claim:
    """Letters that one redrive holds until its lease ends."""

    token: str
    letters: tuple[DeadLetter, ...]


@dataclass(frozen=True, kw_only=True)
class Saved:
    """What a save did: letters that were new or died again, and copies that were known already."""

    arrived: int
    known: int


class Store(Protocol):
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
        """The letter with its attempts, or None."""

    def match_ids(self, prefix: str, limit: int = 10) -> list[str]:
        """Up to ``limit`` task ids that begin with ``prefix``."""

    def find(self, wanted: Filter, *, limit: int = 50, after: str | None = None) -> Page:
        """A page of letters, newest failure first, without their attempts, tracebacks, bodies, headers
        and properties. ``after`` is the mark of the page before; raises ``FilterError`` when it is
        none."""

    def count(self, wanted: Filter) -> int:
        """How many letters match."""

    def count_by_task(self, wanted: Filter) -> Mapping[str, int]:
        """How many letters of each task match, most first."""

    def groups(self, wanted: Filter, *, limit: int = 50) -> list[Group]:
        """Groups with open letters, most open letters first. They can be narrowed by task, exception,
        group, since and until (of the last failure in the group); raises ``FilterError`` for others."""

    def stats(self, now: datetime) -> Stats:
        """Depth, arrivals, ages."""

    def claim(
        self, wanted: Filter, *, token: str, lease_until: datetime, limit: int, now: datetime
    ) -> Claim:
        """Take up to ``limit`` matching letters, oldest failure first, with their messages but without
        attempts, traceback and display copies. Expired claims are taken first, then ``DEAD`` letters,
        then ``REDRIVEN`` ones when the filter names that state. Concurrent claims never take the same
        letter; but a confirmed one is ``REDRIVEN`` again, so that claiming that state until nothing
        is left never ends."""

    def confirm(self, token: str, ids: Sequence[str]) -> int:
        """The broker has them: ``CLAIMED`` becomes ``REDRIVEN`` and the redrive counts. Letters that
        are no longer held under ``token`` (outcome came first, or rescued) are left alone."""

    def release(self, token: str, ids: Sequence[str]) -> int:
        """Not sent: ``CLAIMED`` becomes ``DEAD`` again, uncounted."""

    def rescue(self, now: datetime) -> int:
        """Free the letters of claims whose lease has ended; returns how many."""

    def discard(self, wanted: Filter, *, who: str, why: str, now: datetime) -> int:
        """Close ``DEAD`` (or, when named, ``REDRIVEN``) letters for good; audited. Letters that die
        while it runs are not swept in."""

    def undiscard(self, wanted: Filter, *, who: str, now: datetime) -> int:
        """Open discarded letters again; audited."""

    def record_act(
        self, *, who: str, act: str, detail: Mapping[str, object], now: datetime
    ) -> None:
        """Write an audit row for an operator's act that is not one of the above."""

    def close(self) -> None:
        """Give the connections back."""
