"""What a store can do about redrives: operations, the sendings in them, edits, and the audit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from celery_dlq.letter import DeadLetter, Envelope
from celery_dlq.operation import Counts, OperationState, Orders, Sending, SendingState
from celery_dlq.store.filter import Filter

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Home:
    """Where an operation is to be carried out. Empty where that is not known."""

    #: The name of the Celery app.
    app: str = ""
    #: The address of its broker, without the password.
    broker: str = ""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One redrive: which letters, how, and how far it has come."""

    #: 12 hexadecimal digits.
    id: str
    #: Its ``until`` is the cut-off: letters that fail later are not swept in.
    wanted: Filter
    orders: Orders
    state: OperationState = OperationState.PLANNED
    #: Why it was paused, cancelled or aborted.
    cause: str = ""
    counts: Counts
    #: Who gave the orders, and the machine and process it was made in.
    who: str
    host: str
    home: Home = Home()
    #: Left to a worker.
    detached: bool = False
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Letters that one redrive holds until its lease ends."""

    token: str
    letters: tuple[DeadLetter, ...]


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A letter's message as a person has changed it."""

    task_id: str
    #: The message that was changed: one that was changed by somebody else meanwhile stays.
    before: Envelope
    after: Envelope
    #: Display copies of the new arguments.
    args: Any
    kwargs: Any
    #: Lines of a diff.
    diff: str
    #: By what it was changed, such as ``edit``.
    how: str
    who: str
    at: datetime


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


@dataclass(frozen=True, kw_only=True)
class AuditRow:
    """An act of a person."""

    id: int
    at: datetime
    who: str
    #: The machine from which it was done.
    host: str
    act: str
    #: How many letters it was about.
    count: int
    why: str
    #: The filter, the operation, or the letter.
    detail: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Rows(Generic[T]):
    """Rows of a list, and the mark of the next ones (None at the end)."""

    rows: tuple[T, ...]
    next: str | None


class Redrives(Protocol):
    """The part of a store that redrives are made with. Every method is one transaction, and may be
    repeated."""

    @property
    def claims_at_once(self) -> int:
        """How many claims may gain by being made at the same time."""

    def create_operation(self, operation: Operation) -> None:
        """Write a new operation down; audited as ``redrive``."""

    def operation(self, operation_id: str) -> Operation | None:
        """The operation with its counts, or None."""

    def match_operations(self, prefix: str, limit: int = 10) -> list[str]:
        """Up to ``limit`` ids of operations that begin with ``prefix``."""

    def operations(
        self, *, states: frozenset[OperationState] = frozenset(), limit: int = 50
    ) -> list[Operation]:
        """Operations in one of ``states`` (empty: in any), newest first."""

    def move_operation(
        self, operation_id: str, to: OperationState, *, who: str, cause: str = "", now: datetime
    ) -> Operation:
        """Move it to another state (:data:`~celery_dlq.operation.MOVES`) and return it. Pausing,
        resuming, cancelling and aborting are audited. Moved where it is already, it stays as it is.

        :raises UnknownOperation: there is none with this id.
        :raises OperationError: the move is not allowed.
        """

    def claim_for(
        self,
        operation: Operation,
        *,
        token: str,
        lease_until: datetime,
        limit: int,
        now: datetime,
    ) -> Claim:
        """Take up to ``limit`` letters that ``operation`` wants, oldest failure first, with their
        messages, but of the failure only what a redrive asks for: its times, reason, verdict, rule and
        release. Fewer where their bodies have more than 16 MiB together. Each gets a sending, whose redrive
        is the letter's ``redrive_count`` + 1, and whose copy is ``token``.

        The letters of claims whose lease has ended are freed first. ``DEAD`` letters are taken, then
        ``REDRIVEN`` ones when the filter names that state. Left out are letters that this operation is
        through with: whose sending is in another state than ``sending``. Concurrent claims never take the
        same letter."""

    def end_claim(
        self,
        operation_id: str,
        token: str,
        sent: Mapping[str, str],
        *,
        silent: Collection[str] = (),
        now: datetime,
    ) -> None:
        """The broker has all letters of a claim that were not skipped or released before. The same as
        :meth:`confirm_sendings` of them, in a time that does not depend on how many they are. Where the
        claim is gone, it is just that."""

    def confirm_sendings(
        self,
        operation_id: str,
        token: str,
        sent: Mapping[str, str],
        *,
        silent: Collection[str] = (),
        now: datetime,
    ) -> int:
        """The broker has them. ``sent`` is the change of each, by task id; empty where nothing was
        changed. Of those in ``silent`` no outcome will be reported: their sendings become ``unknown``.
        ``CLAIMED`` letters become ``REDRIVEN`` and the redrive counts; letters that are no
        longer held under ``token`` (the outcome came first, or they were rescued) are left alone.
        Returns how many letters moved."""

    def skip_sendings(
        self, operation_id: str, token: str, why: Mapping[str, str], *, now: datetime
    ) -> int:
        """Not to be sent, each for its reason: ``CLAIMED`` letters become what they were, uncounted, and the
        operation is through with them. Where an earlier copy may be out the sending is ``unknown``.
        Returns how many letters moved."""

    def release_sendings(self, operation_id: str, token: str, ids: Sequence[str]) -> int:
        """Surely not sent: ``CLAIMED`` letters become what they were, uncounted, and may be claimed once
        more, also by this operation. Returns how many letters moved."""

    def free_claims(self, operation_id: str) -> int:
        """Let the letters that this operation holds be what they were, before their lease ends; returns how
        many. For who takes it over from a process that is gone. Their sendings stay: a copy may be
        out."""

    def rescue(self, now: datetime) -> int:
        """Let the letters of claims whose lease has ended be what they were; returns how many. Their
        sendings stay: a copy may be out."""

    def recent_endings(self, operation_id: str, limit: int) -> list[Sending]:
        """The sendings that succeeded or failed last, newest end first."""

    def sendings(
        self,
        operation_id: str,
        *,
        states: frozenset[SendingState] = frozenset(),
        limit: int = 50,
        after: str | None = None,
    ) -> Rows[Sending]:
        """The sendings of an operation in one of ``states`` (empty: in any), in the order of their task
        ids. ``after`` is the mark of the rows before."""

    def sendings_of(self, task_id: str) -> list[Sending]:
        """The redrives of a letter, oldest first."""

    def count_awaited(self, wanted: Filter) -> int:
        """How many ``REDRIVEN`` letters of ``wanted`` may be waiting or running: they were sent, or it is not
        known whether they were, and have no outcome yet. Without those of which none is expected any more."""

    def accept_sendings(self, keys: Sequence[tuple[str, int, str]]) -> list[bool]:
        """For each task id, redrive and copy, whether a worker may run it. The first copy of a redrive
        that is asked about may; the same copy may again, as the broker delivers twice; another copy may
        not, nor any of a redrive that has succeeded or failed, or after which the letter was redriven once
        more. What is not known may."""

    def expire_sendings(self, *, sent_before: datetime, now: datetime) -> int:
        """Sendings without an outcome become ``unknown``: those that were sent before ``sent_before``
        and whose retry is not parked, and those that an operation that ended left behind. Returns how
        many. Their letters stay as they are."""

    def save_edit(self, edit: Edit) -> bool:
        """Replace the message of a ``DEAD`` letter and keep the old one in its history; audited. False
        when the letter is not ``DEAD``, or its message is not the one that was edited."""

    def changes_of(self, task_id: str) -> list[Change]:
        """The history of a letter's message, oldest first."""

    def prune_history(self, before: datetime, *, limit: int) -> int:
        """Forget what is older than ``before``: acts of people, operations that ended, with the sendings in
        them that are through, changes of messages, and how many letters died when. What is about an open
        letter stays. Up to ``limit`` rows of each kind; returns how many were forgotten."""

    def audit(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        act: str | None = None,
        who: str | None = None,
        since: datetime | None = None,
        letter: str | None = None,
    ) -> Rows[AuditRow]:
        """Acts of people, newest first. ``after`` is the mark of the rows before. Those of a ``letter`` are
        the ones that were about it alone, and those on the operations that it was in."""
