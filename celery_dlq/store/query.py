"""From a :class:`~celery_dlq.store.base.Filter` to SQL: conditions, pages in the order of a key, counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    ColumnElement,
    Select,
    String,
    Table,
    and_,
    any_,
    func,
    literal,
    or_,
    select,
    union_all,
)
from sqlalchemy.engine import Connection

from celery_dlq.codec import dump_json
from celery_dlq.errors import FilterError
from celery_dlq.redact import safe_text
from celery_dlq.states import State
from celery_dlq.store import tables
from celery_dlq.store.base import Filter, Page
from celery_dlq.store.rows import letter_from, stored_id

letter, group = tables.letter, tables.group

#: Columns that a list does without: they are large, and :meth:`Store.get` has them.
_NOT_LISTED = frozenset({"body", "headers", "properties", "traceback"})
_LISTED = tuple(column for column in letter.columns if column.name not in _NOT_LISTED)

#: The fields of a filter that groups can answer, too.
GROUP_FIELDS = frozenset({"task", "exception", "group"})

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)

Conditions = list[ColumnElement[bool]]


def begins_with(column: Column[str], prefix: str) -> ColumnElement[bool]:
    """A prefix as a range, which every database reads from the index; LIKE needs escaping, and
    SQLite's ignores case."""
    start = safe_text(prefix)
    return and_(column >= start, column <= start + "\U0010ffff")


def group_conditions(connection: Connection, table: Table, wanted: Filter) -> Conditions:
    """What ``wanted`` says about task, exception and group, for the letters' or groups' table."""
    found: Conditions = []
    if wanted.task:
        found.append(_named(connection, table, "task", wanted.task))
    if wanted.exception:
        found.append(_named(connection, table, "exception_type", wanted.exception))
    if wanted.group:
        found.append(begins_with(table.c.fingerprint, wanted.group))
    return found


def conditions(connection: Connection, wanted: Filter) -> Conditions:
    """Everything that ``wanted`` says, but for the states."""
    found = group_conditions(connection, letter, wanted)
    if wanted.ids:
        ids = [stored_id(item) for item in wanted.ids]
        found.append(one_of(connection, letter.c.task_id, ids))
    if wanted.reason:
        found.append(letter.c.reason == wanted.reason.value)
    if wanted.without_reasons:
        found.append(letter.c.reason.not_in(sorted(wanted.without_reasons)))
    if wanted.queue:
        found.append(letter.c.queue == safe_text(wanted.queue))
    if wanted.worker:
        found.append(begins_with(letter.c.worker, wanted.worker))
    if wanted.since:
        found.append(letter.c.last_failed_at >= wanted.since)
    if wanted.until:
        found.append(letter.c.last_failed_at < wanted.until)
    if wanted.search:
        found.append(_contains(wanted.search))
    return found


def one_of(
    connection: Connection, column: Column[Any], values: Sequence[Any]
) -> ColumnElement[bool]:
    """``column`` has one of many ``values``. PostgreSQL takes them as one array, which a batch of
    hundreds feels: each parameter is written, sent and read by itself."""
    if connection.dialect.name != "postgresql":
        return column.in_(values)
    element = String() if isinstance(column.type, String) else BigInteger()
    return column == any_(literal(values, ARRAY(element)))


def in_states(states: Iterable[State]) -> ColumnElement[bool]:
    """The letters in one of ``states``."""
    return letter.c.state.in_(sorted(state.value for state in states))


def find_page(connection: Connection, wanted: Filter, *, limit: int, after: str | None) -> Page:
    """A page of letters, newest failure first."""
    found = conditions(connection, wanted)
    if after is not None:
        found.append(_older_than(after))
    keys = _newest_keys(sorted(wanted.wanted_states), found, limit + 1)
    marks = [(number, moment) for number, moment in connection.execute(keys)]
    listed = select(*_LISTED).where(letter.c.id.in_([number for number, _ in marks[:limit]]))
    rows = {row["id"]: row for row in connection.execute(listed).mappings()}
    return Page(
        letters=tuple(letter_from(rows[number]) for number, _ in marks[:limit] if number in rows),
        next=_cursor(*marks[limit - 1]) if len(marks) > limit > 0 else None,
    )


def count(connection: Connection, wanted: Filter) -> int:
    """How many letters match; read from the groups where they know."""
    if not _given(wanted) - GROUP_FIELDS:
        known = group_conditions(connection, group, wanted)
        open_letters = select(func.coalesce(func.sum(group.c.open_count), 0)).where(*known)
        return int(connection.execute(open_letters).scalar_one())
    found = conditions(connection, wanted)
    matching = (
        select(func.count()).select_from(letter).where(in_states(wanted.wanted_states), *found)
    )
    return int(connection.execute(matching).scalar_one())


def count_by_task(connection: Connection, wanted: Filter) -> dict[str, int]:
    """How many letters of each task match, most first."""
    number = func.count().label("number")
    matching = (
        select(letter.c.task, number)
        .where(in_states(wanted.wanted_states), *conditions(connection, wanted))
        .group_by(letter.c.task)
        .order_by(number.desc(), letter.c.task)
    )
    return {task: int(found) for task, found in connection.execute(matching)}


def match_ids(connection: Connection, prefix: str, limit: int) -> list[str]:
    """Task ids that begin with ``prefix``, in their order."""
    matching = select(letter.c.task_id).where(begins_with(letter.c.task_id, prefix))
    return list(connection.execute(matching.order_by(letter.c.task_id).limit(limit)).scalars())


def _given(wanted: Filter) -> set[str]:
    return {item.name for item in fields(wanted) if getattr(wanted, item.name)}


def _named(connection: Connection, table: Table, column: str, name: str) -> ColumnElement[bool]:
    """A full dotted name or its last part. The few names that end like this come from the groups,
    so that the letters' index can be asked for whole names."""
    name = safe_text(name)
    stored = group.c[column]
    ending = select(stored).where(stored.endswith(f".{name}", autoescape=True)).distinct()
    # SQLite's LIKE ignores case; names do not.
    same = [item for item in connection.execute(ending).scalars() if item.endswith(f".{name}")]
    return table.c[column].in_([name, *sorted(same)])


def _contains(text: str) -> ColumnElement[bool]:
    text = safe_text(text)
    plain = (letter.c.message, letter.c.exception_type, letter.c.task)
    # Arguments are kept as JSON, which escapes quotes and everything beyond ASCII.
    quoted = {dump_json(form)[1:-1] for form in (text, text.lower(), text.upper())}
    return or_(
        *(column.icontains(text, autoescape=True) for column in plain),
        *(
            column.icontains(form, autoescape=True)
            for column in (letter.c.args, letter.c.kwargs)
            for form in sorted(quoted)
        ),
    )


def _newest_keys(states: Sequence[State], found: Conditions, limit: int) -> Select[Any]:
    """Id and time of the newest letters. One limited query per state, because the index is in the
    order of time only within one; and the keys alone, because a planner that does not know the
    table yet joins them to it the wrong way round."""
    newest = letter.c.last_failed_at.desc(), letter.c.id.desc()
    parts: list[Select[Any]] = []
    for state in states:
        part = select(letter.c.id, letter.c.last_failed_at).where(in_states([state]), *found)
        parts.append(select(part.order_by(*newest).limit(limit).subquery()))
    keys = union_all(*parts).subquery()
    return select(keys).order_by(keys.c.last_failed_at.desc(), keys.c.id.desc()).limit(limit)


def _cursor(number: int, moment: datetime) -> str:
    return f"{(moment - _EPOCH) // _MICROSECOND}.{number}"


def _older_than(cursor: str) -> ColumnElement[bool]:
    try:
        micros, number = (int(part) for part in cursor.split("."))
        moment = _EPOCH + micros * _MICROSECOND
    except (ValueError, OverflowError):
        raise FilterError(f"{cursor!r} is no page mark; start again without --after.") from None
    at = letter.c.last_failed_at
    # Written so that the first half alone bounds the index; MySQL ignores row comparisons there.
    return and_(at <= moment, or_(at < moment, letter.c.id < number))
