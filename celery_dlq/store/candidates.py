"""The letters that automations may take, and how many they have had lately, or hold."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, case, func, or_, select
from sqlalchemy.engine import Connection

from celery_dlq.model.automation import AutoMode, AutoSends, AutoTry, Candidate
from celery_dlq.model.handling import LIVE, HandlingState
from celery_dlq.model.operation import ENDED, SendingState
from celery_dlq.model.states import OPEN_STATES, State
from celery_dlq.store.base import Scope
from celery_dlq.store.database.tables import group, handling, held, letter, operation, sending
from celery_dlq.store.rows.query import conditions, count_rows, in_states, one_of, sums_by
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

_CANDIDATE = (
    "id", "task_id", "task", "fingerprint", "release", "last_failed_at", "redrive_count",
)  # fmt: skip


def candidates(
    connection: Connection,
    scope: Scope,
    earlier: Sequence[Scope],
    *,
    limit: int,
    since: datetime | None,
    failed_by: datetime | None,
    after: Candidate | None,
) -> list[Candidate]:
    """The next letters of an automation, oldest failure first: see
    :meth:`~celery_dlq.store.automations.Automations.candidates`."""
    found = [in_states([State.DEAD]), *conditions(connection, scope.where)]
    if scope.version:
        found.append(~_had_failure(scope))
    else:
        found.append(
            ~select(1).where(held.c.task_id == letter.c.task_id).correlate(letter).exists()
        )
    if scope.once_per_group:
        found.append(~_group_was_handled(scope))
    found += [~_belongs_to(connection, other) for other in earlier]
    if since is not None:
        found.append(letter.c.last_failed_at >= since)
    if failed_by is not None:
        found.append(letter.c.last_failed_at <= failed_by)
    if after is not None:
        found.append(_behind(after))
    oldest = (
        select(*(letter.c[name] for name in _CANDIDATE))
        .where(*found)
        # In the order of the indexes.
        .order_by(letter.c.last_failed_at, letter.c.id)
        .limit(limit)
    )
    rows = connection.execute(oldest).mappings().all()
    tries = {} if scope.version else _tries(connection, [row["task_id"] for row in rows])
    return [
        read_row(
            Candidate, row, number=row["id"], failed_at=row["last_failed_at"],
            tries=tries.get(row["task_id"], ()),
        )
        for row in rows
    ]  # fmt: skip


def room(connection: Connection, name: str, *, per_hour: int, most: int, now: datetime) -> int:
    """How many more letters a handler may get now: it is called ``per_hour`` times within an hour, and
    ``most`` letters wait for it at a time."""
    calls = handling.c.tries + case((handling.c.state == HandlingState.QUEUED.value, 1), else_=0)
    lately = and_(handling.c.name == name, handling.c.queued_at > now - _HOUR)
    used = connection.execute(select(func.coalesce(func.sum(calls), 0)).where(lately)).scalar_one()
    waiting = handling.c.state.in_(_LIVE), handling.c.name == name
    return max(0, min(per_hour - int(used), most - count_rows(connection, handling, *waiting)))


def sends(connection: Connection, name: str, mode: AutoMode, now: datetime) -> AutoSends:
    """How many letters automatic redrives have sent, or may still send, lately."""
    lately = handling.c.name == name, handling.c.queued_at > now - _DAY
    return AutoSends(
        day=_count_sends(connection, mode, *lately),
        # These have ended when they were queued. This column has an index of its own.
        hour_of_all=_count_sends(connection, mode, handling.c.ended_at > now - _HOUR),
    )


def count_held(connection: Connection) -> dict[str, int]:
    """How many open letters each automatic redrive holds."""
    of_it = letter.c.task_id == held.c.task_id, in_states(OPEN_STATES)
    is_open = select(1).where(*of_it).correlate(held).exists()
    return sums_by(connection, func.count(), held.c.name, where=[is_open])


def _count_sends(connection: Connection, mode: AutoMode, *lately: ColumnElement[bool]) -> int:
    if mode is AutoMode.SHADOW:
        return count_rows(connection, handling, handling.c.state == mode.value, *lately)
    may_be_sent = or_(sending.c.operation.is_not(None), ~_IS_OVER)
    sent = handling.c.state == HandlingState.DONE.value, BY_ITSELF, may_be_sent
    counted = select(func.count()).select_from(TRIES).where(*sent, *lately)
    return int(connection.execute(counted).scalar_one())


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


def _behind(after: Candidate) -> ColumnElement[bool]:
    later = letter.c.last_failed_at > after.failed_at
    same = and_(letter.c.last_failed_at == after.failed_at, letter.c.id > after.number)
    return or_(later, same)


def _of(scope: Scope) -> ColumnElement[bool]:
    return and_(handling.c.name == scope.name, handling.c.version == scope.version)


def _had_failure(scope: Scope, *also: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether the handler has had the letter with its last failure. ``also`` restricts the handlings."""
    same = handling.c.task_id == letter.c.task_id, handling.c.failed_at == letter.c.last_failed_at
    return select(1).where(*same, _of(scope), *also).correlate(letter).exists()


def _belongs_to(connection: Connection, other: Scope) -> ColumnElement[bool]:
    """Whether an earlier automation has to have the letter first: its filter matches, and it has not left
    it. An automatic redrive leaves none."""
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
    had = and_(same, _of(scope), or_(handling.c.state.in_(_LIVE), done))
    return select(1).where(had).correlate(letter).exists()
