"""The letters that automations may take, and how many they have had lately, or hold."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.engine import Connection

from celery_dlq.model.automation import AutoMode, AutoSends, AutoTry, Candidate
from celery_dlq.model.handling import LIVE, HandlingState
from celery_dlq.model.operation import ENDED, SendingState
from celery_dlq.model.states import OPEN_STATES, State
from celery_dlq.store.base import Scope
from celery_dlq.store.database import clock
from celery_dlq.store.database.namespaces import is_ours
from celery_dlq.store.database.tables import auto_hold, group, handling, letter, operation, sending
from celery_dlq.store.database.transactions import ListenedRole, reads
from celery_dlq.store.listener import StoreListener
from celery_dlq.store.rows.query import (
    conditions,
    count_rows,
    follows,
    in_states,
    one_of,
    sum_of,
    sums_by,
)
from celery_dlq.store.rows.rows import read_row

_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)

#: The names of the verdicts with which a letter is passed on to the next handler, and sent back.
LEFT, REDRIVEN = "leave", "redrive"

_LIVE = sorted(state.value for state in LIVE)

#: Whether a handling is that of an automatic redrive, which calls no function.
BY_ITSELF = and_(handling.c.verdict == REDRIVEN, handling.c.tries == 0)
_OVER = sorted(state.value for state in ENDED)
#: Whether its operation has ended, or was deleted.
_IS_OVER = or_(operation.c.id.is_(None), operation.c.state.in_(_OVER))
#: The handlings, each with its operation and its sending, if there are any.
TRIES = handling.outerjoin(operation, operation.c.id == handling.c.operation).outerjoin(
    sending,
    and_(sending.c.operation == handling.c.operation, sending.c.task_id == handling.c.task_id),
)

_IS_HELD = select(1).where(auto_hold.c.task_id == letter.c.task_id).correlate(letter).exists()

_CANDIDATE = (
    "id", "task_id", "task", "fingerprint", "release", "last_failed_at", "redrive_count",
)  # fmt: skip


def count_held(connection: Connection) -> dict[str, int]:
    """How many open letters each automatic redrive holds."""
    of_it = letter.c.task_id == auto_hold.c.task_id, in_states(OPEN_STATES)
    is_open = select(1).where(*of_it).correlate(auto_hold).exists()
    return sums_by(connection, func.count(), auto_hold.c.name, where=[is_open])


class Candidates(ListenedRole[StoreListener]):
    """The part of :class:`~celery_dlq.store.automations.Automations` that chooses letters."""

    @reads
    def candidates(
        self,
        scope: Scope,
        earlier: Sequence[Scope] = (),
        *,
        limit: int,
        since: datetime | None = None,
        failed_by: datetime | None = None,
        after: Candidate | None = None,
    ) -> list[Candidate]:
        """The next letters of an automation, oldest failure first: dead letters of its filter that no
        automation of ``earlier`` has to have first. A handler gets each failure once, and perhaps one letter
        of each group. An automatic redrive gets no letters that are held; its own judgement follows.

        :param since: only letters that failed then or later.
        :param failed_by: only letters that failed then or earlier.
        :param after: the last letter of the previous page.
        """
        at, had = letter.c.last_failed_at, _had_failure(scope) if scope.version else _IS_HELD
        found = [in_states([State.DEAD]), *conditions(self.connection, scope.where), ~had]
        if scope.once_per_group:
            found.append(~_group_was_handled(scope))
        found += [~_belongs_to(self.connection, other) for other in earlier]
        if since is not None:
            found.append(at >= since)
        if failed_by is not None:
            found.append(at <= failed_by)
        if after is not None:
            found.append(follows((at, letter.c.id), (after.failed_at, after.number)))
        oldest = select(*(letter.c[name] for name in _CANDIDATE)).where(*found)
        # In the order of the indexes.
        in_order = oldest.order_by(at, letter.c.id).limit(limit)
        rows = self.connection.execute(in_order).mappings().all()
        tries = {} if scope.version else _tries(self.connection, [row["task_id"] for row in rows])
        chosen = [
            read_row(
                Candidate, row, number=row["id"], failed_at=row["last_failed_at"],
                tries=tries.get(row["task_id"], ()),
            )
            for row in rows
        ]  # fmt: skip
        if scope.once_per_group:
            return [*{one.fingerprint: one for one in reversed(chosen)}.values()][::-1]
        return chosen

    @reads
    def room(self, name: str, *, per_hour: int, most: int) -> int:
        """How many more letters a handler may get now: it is called ``per_hour`` times within an hour, and
        ``most`` letters wait for it at a time."""
        its, lately = handling.c.name == name, clock.now(self.connection) - _HOUR
        called = sum_of(self.connection, handling.c.tries, its, handling.c.queued_at > lately)
        is_queued = handling.c.state == HandlingState.QUEUED.value
        queued = count_rows(
            self.connection, handling, its, is_queued, handling.c.queued_at > lately
        )
        waiting = count_rows(self.connection, handling, its, handling.c.state.in_(_LIVE))
        return max(0, min(per_hour - called - queued, most - waiting))

    @reads
    def sends(self, name: str, mode: AutoMode, now: datetime) -> AutoSends:
        """How many letters automatic redrives have sent, or may still send, lately."""
        lately = handling.c.name == name, handling.c.queued_at > now - _DAY
        return AutoSends(
            day=_count_sends(self.connection, mode, *lately),
            # These have ended when they were queued. This column has an index of its own.
            hour_of_all=_count_sends(self.connection, mode, handling.c.ended_at > now - _HOUR),
        )

    @reads
    def count_held(self) -> dict[str, int]:
        """How many open letters each automatic redrive holds."""
        return count_held(self.connection)


def _count_sends(connection: Connection, mode: AutoMode, *lately: ColumnElement[bool]) -> int:
    lately = (is_ours(connection, handling), *lately)
    if mode is AutoMode.SHADOW:
        return count_rows(connection, handling, handling.c.state == mode.value, *lately)
    may_be_sent = or_(sending.c.operation.is_not(None), ~_IS_OVER)
    sent = handling.c.state == HandlingState.DONE.value, BY_ITSELF, may_be_sent
    return count_rows(connection, TRIES, *sent, *lately)


def _tries(connection: Connection, task_ids: Sequence[str]) -> dict[str, tuple[AutoTry, ...]]:
    if not task_ids:
        return {}
    stored = (
        select(
            handling.c.task_id, handling.c.fingerprint, handling.c.queued_at, handling.c.state,
            sending.c.state.label("sent"), _IS_OVER.label("is_over"),
        )
        .select_from(TRIES)
        .where(one_of(connection, handling.c.task_id, task_ids), BY_ITSELF)
        .order_by(handling.c.queued_at, handling.c.id)
    )  # fmt: skip
    found: dict[str, tuple[AutoTry, ...]] = {}
    for row in connection.execute(stored):
        is_shadow = row.state == HandlingState.SHADOW.value
        one = AutoTry(
            at=row.queued_at,
            mode=AutoMode.SHADOW if is_shadow else AutoMode.ON,
            fingerprint=row.fingerprint,
            state=None if row.sent is None else SendingState(row.sent),
            is_over=bool(row.is_over),
        )
        found[row.task_id] = (*found.get(row.task_id, ()), one)
    return found


def of_scope(scope: Scope) -> ColumnElement[bool]:
    """The handlings of an automation."""
    return and_(handling.c.name == scope.name, handling.c.version == scope.version)


def _had_failure(scope: Scope, *also: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether the handler has had the letter with its last failure. ``also`` restricts the handlings."""
    same = handling.c.task_id == letter.c.task_id, handling.c.failed_at == letter.c.last_failed_at
    return select(1).where(*same, of_scope(scope), *also).correlate(letter).exists()


def _belongs_to(connection: Connection, other: Scope) -> ColumnElement[bool]:
    """Whether an earlier automation has to have the letter first: the filter of that automation matches, and
    it has not left the letter. An automatic redrive leaves no letters."""
    found = conditions(connection, other.where)
    if other.version:
        found = [*found, ~_had_failure(other, handling.c.verdict == LEFT)]
    return and_(*found)


def _group_was_handled(scope: Scope) -> ColumnElement[bool]:
    """Whether the handler has, or had, a letter of the same group. What it did before the group failed again
    does not count."""
    regressed = (
        select(func.max(group.c.regressed_at))
        .where(group.c.fingerprint == letter.c.fingerprint)
        .correlate(letter)
        .scalar_subquery()
    )
    done = and_(
        handling.c.state == HandlingState.DONE.value,
        or_(regressed.is_(None), handling.c.queued_at >= regressed),
    )
    same = handling.c.fingerprint == letter.c.fingerprint
    had = and_(same, of_scope(scope), or_(handling.c.state.in_(_LIVE), done))
    return select(1).where(had).correlate(letter).exists()
