"""From a :class:`~celery_dlq.store.base.Filter` to SQL: conditions, and pages in the order of a key."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Select,
    String,
    Table,
    and_,
    any_,
    false,
    func,
    literal,
    not_,
    or_,
    select,
    union_all,
)
from sqlalchemy.engine import Connection

from celery_dlq.codec import dump_json
from celery_dlq.errors import FilterError
from celery_dlq.letter import DeadLetter
from celery_dlq.redact import safe_text
from celery_dlq.states import State
from celery_dlq.store import tables
from celery_dlq.store.base import Filter, Page
from celery_dlq.store.bodies import SIZE, body_of
from celery_dlq.store.columns import Many
from celery_dlq.store.rows import bare, letter_from, parked_letter, stored_id

letter, content, group, parked = tables.letter, tables.content, tables.group, tables.parked
sending, claim = tables.sending, tables.claim

_HELD = letter.c.claim_token.in_(select(claim.c.token))
#: Whether a letter that is written as redriven is a claim's, to be read with its row.
IS_CLAIMED = func.coalesce(_HELD, false()).label("is_claimed")

#: Whether a row of contents is a letter's.
OF_LETTER = content.c.id == letter.c.id

_CONTENT = [column for column in content.columns if column.name not in ("id", "body")]

#: A letter with all that is its own, but for :func:`~celery_dlq.store.bodies.with_body`.
WHOLE = select(letter, *_CONTENT, SIZE, body_of(1), IS_CLAIMED).join(content, OF_LETTER)

# A list does without the rest: it is large, and WHOLE has it.
_LISTED = select(letter, content.c.args, content.c.kwargs, IS_CLAIMED).join(content, OF_LETTER)

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


def conditions(connection: Connection, wanted: Filter, table: Table = letter) -> Conditions:
    """Everything that ``wanted`` says, but for the states, about letters or parked retries."""
    found = group_conditions(connection, table, wanted)
    if wanted.ids:
        ids = [stored_id(item) for item in wanted.ids]
        found.append(one_of(connection, table.c.task_id, ids))
    if wanted.reason:
        found.append(table.c.reason == wanted.reason.value)
    if wanted.without_reasons:
        found.append(table.c.reason.not_in(sorted(wanted.without_reasons)))
    if wanted.queue:
        found.append(table.c.queue == safe_text(wanted.queue))
    if wanted.operation:
        of_it = select(sending.c.task_id).where(sending.c.operation == safe_text(wanted.operation))
        found.append(table.c.task_id.in_(of_it))
    if wanted.worker:
        found.append(begins_with(table.c.worker, wanted.worker))
    if wanted.since:
        found.append(table.c.last_failed_at >= wanted.since)
    if wanted.until:
        found.append(table.c.last_failed_at < wanted.until)
    if wanted.search:
        found.append(_contains(connection, wanted.search, table))
    return found


def one_of(
    connection: Connection, column: Column[Any], values: Sequence[Any]
) -> ColumnElement[bool]:
    """``column`` has one of many ``values``. They are given at once where the database reads that, which a
    batch of hundreds feels: each parameter is written, sent and read by itself."""
    dialect = connection.dialect.name
    if dialect == "mysql":
        return column.in_(values)
    if dialect == "sqlite":
        given = func.json_each(json.dumps(list(values))).table_valued("value")
        return column.in_(select(given.c.value))
    element = "VARCHAR" if isinstance(column.type, String) else "BIGINT"
    return column == any_(literal(values, Many(element)))


def in_states(states: Iterable[State]) -> ColumnElement[bool]:
    """The letters in one of ``states``. Claimed ones are written as redriven."""
    named = frozenset(states)
    written = named - {State.CLAIMED} | ({State.REDRIVEN} if State.CLAIMED in named else set())
    found = letter.c.state.in_(sorted(state.value for state in written))
    if (State.CLAIMED in named) == (State.REDRIVEN in named):
        return found
    others = letter.c.state != State.REDRIVEN.value
    if State.CLAIMED in named:
        return and_(found, or_(others, _HELD))
    return and_(found, or_(others, letter.c.claim_token.is_(None), not_(_HELD)))


def is_parked() -> ColumnElement[bool]:
    """The retries that wait, and not those that were released."""
    return parked.c.state == State.PARKED.value


@dataclass(frozen=True)
class Mark:
    """A place in the order of the lists: the newest failure first."""

    #: What :func:`_number` gives.
    number: int
    moment: datetime

    @classmethod
    def read(cls, cursor: str) -> Mark:
        """The inverse of :attr:`cursor`.

        :raises FilterError: it is none.
        """
        try:
            micros, number = (int(part) for part in cursor.split("."))
            return cls(number, _EPOCH + micros * _MICROSECOND)
        except (ValueError, OverflowError):
            raise FilterError(f"{cursor!r} is no page mark; start again without --after.") from None

    @property
    def cursor(self) -> str:
        """What people and programs hand back."""
        return f"{(self.moment - _EPOCH) // _MICROSECOND}.{self.number}"


@dataclass(frozen=True)
class Stretch:
    """A part of that order: behind one mark, down to another one and with it."""

    after: Mark | None = None
    down_to: Mark | None = None


def page_of(connection: Connection, marks: Sequence[Mark], limit: int) -> Page:
    """The first ``limit`` letters of ``marks``; there is a next page when there are more."""
    letters = _listed(connection, [mark.number for mark in marks[:limit]])
    return Page(
        letters=tuple(letters[mark.number] for mark in marks[:limit] if mark.number in letters),
        next=marks[limit - 1].cursor if len(marks) > limit > 0 else None,
    )


def _listed(connection: Connection, numbers: Sequence[int]) -> dict[int, DeadLetter]:
    """The letters of ``numbers``, which :func:`_number` gives."""
    listed = _LISTED.where(letter.c.id.in_([number for number in numbers if number > 0]))
    found = {row["id"]: letter_from(row) for row in connection.execute(listed).mappings()}
    waiting = [-number for number in numbers if number < 0]
    if waiting:
        rows = connection.execute(select(parked).where(parked.c.id.in_(waiting))).mappings()
        found |= {-row["id"]: bare(parked_letter(row)) for row in rows}
    return found


def places(connection: Connection, wanted: Filter) -> Iterator[tuple[Table, Conditions]]:
    """The tables in which ``wanted`` is to be looked for, each with all that it says there."""
    states = wanted.wanted_states
    if states - {State.PARKED}:
        yield letter, [in_states(states), *conditions(connection, wanted)]
    if State.PARKED in states:
        yield parked, [is_parked(), *conditions(connection, wanted, parked)]


def match_ids(connection: Connection, prefix: str, limit: int) -> list[str]:
    """Task ids that begin with ``prefix``, in their order."""
    ids = set[str]()
    for table, found in ((letter, []), (parked, [is_parked()])):
        matching = select(table.c.task_id).where(begins_with(table.c.task_id, prefix), *found)
        ids |= set(connection.execute(matching.order_by(table.c.task_id).limit(limit)).scalars())
    return sorted(ids)[:limit]


def _named(connection: Connection, table: Table, column: str, name: str) -> ColumnElement[bool]:
    """A full dotted name or its last part. The few names that end like this come from the groups,
    so that the letters' index can be asked for whole names."""
    name = safe_text(name)
    # Of parked retries there are no groups, and few rows.
    stored = (table if table is parked else group).c[column]
    ending = select(stored).where(stored.endswith(f".{name}", autoescape=True)).distinct()
    # SQLite's LIKE ignores case; names do not.
    same = [item for item in connection.execute(ending).scalars() if item.endswith(f".{name}")]
    return table.c[column].in_([name, *sorted(same)])


def _contains(connection: Connection, text: str, table: Table) -> ColumnElement[bool]:
    text = safe_text(text)
    plain = (table.c.message, table.c.exception_type, table.c.task)
    # Arguments are kept as JSON, which escapes quotes and everything beyond ASCII.
    quoted = {dump_json(form)[1:-1].lower() for form in (text, text.lower(), text.upper())}
    arguments = content if table is letter else table
    in_arguments = or_(
        *(
            _ascii_lower(connection, column).contains(form, autoescape=True)
            for column in (arguments.c.args, arguments.c.kwargs)
            for form in sorted(quoted)
        )
    )
    if table is letter:
        # Asked letter by letter, for as long as no other text has it.
        found = select(in_arguments).where(OF_LETTER).correlate(letter)
        in_arguments = found.scalar_subquery()
    return or_(*(column.icontains(text, autoescape=True) for column in plain), in_arguments)


def _ascii_lower(connection: Connection, column: Column[str]) -> ColumnElement[str]:
    # In a language of its own, PostgreSQL takes three times as long for each letter.
    return func.lower(column.collate("C") if connection.dialect.name == "postgresql" else column)


def newest(
    connection: Connection, wanted: Filter, within: Stretch, *, limit: int, skip: int = 0
) -> list[Mark]:
    """The newest letters ``within`` a part of the order, but for the first to ``skip``. One limited query
    per state, because the index is in the order of time only within one; and the keys alone, because a
    planner that does not know the table yet joins them to it the wrong way round."""
    parts: list[Select[Any]] = []
    for state in sorted(wanted.wanted_states):
        table = parked if state is State.PARKED else letter
        is_in = is_parked() if table is parked else in_states([state])
        found = [is_in, *_inside(within, table), *conditions(connection, wanted, table)]
        part = select(_number(table).label("number"), table.c.last_failed_at).where(*found)
        order = table.c.last_failed_at.desc(), _number(table).desc()
        parts.append(select(part.order_by(*order).limit(skip + limit).subquery()))
    keys = union_all(*parts).subquery()
    ordered = select(keys).order_by(keys.c.last_failed_at.desc(), keys.c.number.desc())
    return [Mark(*row) for row in connection.execute(ordered.limit(limit).offset(skip))]


def _number(table: Table) -> ColumnElement[int]:
    """What tells a row from those of the same time: its id, below zero for parked retries."""
    return -parked.c.id if table is parked else letter.c.id


def _inside(within: Stretch, table: Table) -> Conditions:
    # Written so that the first half alone bounds the index; MySQL ignores row comparisons there.
    at, number, found = table.c.last_failed_at, _number(table), list[ColumnElement[bool]]()
    if within.after:
        moment = within.after.moment
        found += [at <= moment, or_(at < moment, number < within.after.number)]
    if within.down_to:
        moment = within.down_to.moment
        found += [at >= moment, or_(at > moment, number >= within.down_to.number)]
    return found
