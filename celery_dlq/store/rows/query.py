"""Turns a :class:`~celery_dlq.store.base.Filter` into SQL conditions on letters, parked retries and
groups."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from celery_dlq.base.codec import dump_json
from celery_dlq.base.redact import safe_text
from celery_dlq.errors import ContentsSealed, FilterError, NamespaceError, page
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.store.database.dialects import dialect_of
from celery_dlq.store.database.namespaces import is_ours, narrow, seen
from celery_dlq.store.database.sealing import sealing_of
from celery_dlq.store.database.tables import (
    auto_hold,
    claim,
    content,
    group,
    letter,
    parked,
    sending,
)
from celery_dlq.store.rows.bodies import SIZE, body_of
from celery_dlq.store.rows.rows import fit_text, stored_id
from celery_dlq.store.rows.terms import value_conditions

_HELD = letter.c.claim_token.in_(sa.select(claim.c.token))
#: Whether a claim holds a letter that is written as redriven. It is read with the letter's row.
IS_CLAIMED = sa.func.coalesce(_HELD, sa.false()).label("is_claimed")

#: The retries that wait, without those that were released.
IS_PARKED = parked.c.state == State.PARKED.value

#: Whether a row of contents is a letter's.
OF_LETTER = content.c.id == letter.c.id

_CONTENT = [column for column in content.columns if column.name not in ("id", "body")]

#: A letter with all that it has; for a large body, see :func:`~celery_dlq.store.rows.bodies.with_body`.
WHOLE = sa.select(letter, *_CONTENT, SIZE, body_of(1), IS_CLAIMED).join(content, OF_LETTER)

#: The fields of a filter that groups can answer, too.
GROUP_FIELDS = frozenset({"task", "exception", "group", "namespace"})

Conditions = list[sa.ColumnElement[bool]]


def begins_with(column: sa.Column[str], prefix: str) -> sa.ColumnElement[bool]:
    """A prefix as a range, which every database reads from the index; LIKE needs escaping, and
    SQLite's ignores case."""
    return sa.and_(column >= prefix, column <= prefix + "\U0010ffff")


def group_conditions(connection: Connection, table: sa.Table, wanted: Filter) -> Conditions:
    """The conditions of ``wanted`` on namespace, task, exception and group, for the letters' or groups'
    table."""
    found: Conditions = [is_ours(connection, table, wanted.namespace)]
    for column, name in (("task", wanted.task), ("exception_type", wanted.exception)):
        if name:
            found.append(_named(connection, table, column, name))
    if wanted.group:
        found.append(begins_with(table.c.fingerprint, wanted.group))
    return found


def conditions(connection: Connection, wanted: Filter, table: sa.Table = letter) -> Conditions:
    """All conditions of ``wanted`` on letters or parked retries, except the states."""
    found = group_conditions(connection, table, wanted)
    if wanted.ids:
        ids = [stored_id(item) for item in wanted.ids]
        found.append(one_of(connection, table.c.task_id, ids))
    if wanted.without_reasons:
        found.append(table.c.reason.not_in(sorted(wanted.without_reasons)))
    for name in ("reason", "queue", "route", "verdict"):
        if value := getattr(wanted, name):
            found.append(table.c[name] == getattr(value, "value", value))
    for name in ("worker", "rule"):
        if beginning := getattr(wanted, name):
            found.append(begins_with(table.c[name], beginning))
    found += _others(connection, wanted, table)
    found += value_conditions(connection, wanted, table)
    if wanted.search:
        if sealing_of(connection).ring is not None:
            raise FilterError(
                "Letters are encrypted, so texts are not searched; find a whole value (--value or --arg)."
            )
        found.append(_contains(connection, wanted.search, table))
    return found


def _others(
    connection: Connection, wanted: Filter, table: sa.Table
) -> Iterator[sa.ColumnElement[bool]]:
    if wanted.operation:
        of_it = sa.select(sending.c.task_id).where(sending.c.operation == wanted.operation)
        yield table.c.task_id.in_(of_it)
    if wanted.held:
        yield table.c.task_id.in_(sa.select(auto_hold.c.task_id))
    if wanted.root:
        yield _of_canvas(connection, table, wanted.root)
    if wanted.release:
        yield _is(table.c.release, wanted.release)
    if wanted.tag:
        yield _has_tag(connection, table.c.tags, wanted.tag)
    if wanted.since:
        yield table.c.last_failed_at >= wanted.since
    if wanted.until:
        yield table.c.last_failed_at < wanted.until


def follows(
    columns: tuple[sa.Column[Any], sa.Column[Any]], place: tuple[Any, Any]
) -> sa.ColumnElement[bool]:
    """Whether a row comes after ``place`` in the order of these columns. The first half alone bounds the
    index: MySQL ignores row comparisons there."""
    (first, second), (first_value, second_value) = columns, place
    return sa.and_(first >= first_value, sa.or_(first > first_value, second > second_value))


def one_of(
    connection: Connection, column: sa.Column[Any], values: Sequence[Any]
) -> sa.ColumnElement[bool]:
    """Whether ``column`` has one of many ``values``. They are passed as one parameter if the database can
    read that. For hundreds of values this saves time, because each parameter is written, sent and read by
    itself."""
    return dialect_of(connection).one_of(column, values)


def count_rows(connection: Connection, table: sa.FromClause, *found: sa.ColumnElement[bool]) -> int:
    """How many rows of ``table`` that this process sees meet all these conditions."""
    ours = [is_ours(connection, table)] if isinstance(table, sa.Table) else []
    counted = sa.select(sa.func.count()).select_from(table).where(*ours, *found)
    return int(connection.execute(counted).scalar_one())


def sum_of(connection: Connection, column: sa.Column[int], *found: sa.ColumnElement[bool]) -> int:
    """The sum of ``column`` in the rows that this process sees and that meet all these conditions."""
    ours = is_ours(connection, column.table)
    added = sa.select(sa.func.coalesce(sa.func.sum(column), 0)).where(ours, *found)
    return int(connection.execute(added).scalar_one())


def sums_by(
    connection: Connection,
    total: sa.ColumnElement[int],
    *columns: sa.Column[Any],
    where: Sequence[sa.ColumnElement[bool]],
) -> dict[Any, int]:
    """A number for each value of a column, or for each combination of values of several columns.

    :param total: is computed from the rows with these values that this process sees and that meet all
        conditions.
    """
    ours = is_ours(connection, columns[0].table)
    summed = sa.select(*columns, total).where(ours, *where).group_by(*columns)
    # Sums are decimals on some databases.
    found = {tuple(values): int(number) for *values, number in connection.execute(summed)}
    return found if len(columns) > 1 else {value: number for (value,), number in found.items()}


def in_states(states: Iterable[State]) -> sa.ColumnElement[bool]:
    """The letters in one of ``states``. Claimed ones are written as redriven."""
    named = frozenset(states)
    written = named - {State.CLAIMED} | ({State.REDRIVEN} if State.CLAIMED in named else set())
    found = letter.c.state.in_(sorted(state.value for state in written))
    if (State.CLAIMED in named) == (State.REDRIVEN in named):
        return found
    others = letter.c.state != State.REDRIVEN.value
    if State.CLAIMED in named:
        return sa.and_(found, sa.or_(others, _HELD))
    return sa.and_(found, sa.or_(others, letter.c.claim_token.is_(None), sa.not_(_HELD)))


def without_claimed(connection: Connection, rows: Sequence[sa.RowMapping]) -> list[sa.RowMapping]:
    """The locked rows, which have ``claim_token``, that no claim holds."""
    live = live_tokens(connection, (row["claim_token"] for row in rows))
    return [row for row in rows if row["claim_token"] not in live]


def live_tokens(connection: Connection, tokens: Iterable[str | None]) -> set[str]:
    """The ``tokens`` of claims that exist. A query that waited for the lock of a claim does not see that
    claim, but a new query does."""
    named = sorted({token for token in tokens if token is not None})
    stored = sa.select(claim.c.token).where(claim.c.token.in_(named))
    return set(connection.scalars(stored)) if named else set()


def is_after(key: Sequence[sa.Column[Any]], last: Sequence[Any]) -> sa.ColumnElement[bool]:
    """Whether a row comes after the one with the key ``last``, in the order of the key."""
    # The first half bounds the index: MySQL ignores row comparisons there.
    behind = sa.tuple_(*key) > sa.tuple_(*map(sa.literal, last))
    return sa.and_(key[0] >= last[0], behind)


def places(connection: Connection, wanted: Filter) -> Iterator[tuple[sa.Table, Conditions]]:
    """The tables that may have letters of ``wanted``, each with all conditions on it."""
    states = wanted.wanted_states
    if states - {State.PARKED}:
        yield letter, [in_states(states), *conditions(connection, wanted)]
    if State.PARKED in states:
        yield parked, [IS_PARKED, *conditions(connection, wanted, parked)]


def check_keys(connection: Connection, *found: sa.ColumnElement[bool]) -> None:
    """Check that the keys of the ring are here with which the letters that meet all conditions are sealed.

    :raises ContentsSealed: a key is not.
    """
    ring, by, last = sealing_of(connection).ring, letter.c.sealed_by, ""
    here = {_hash_in(label) for label in ring.labels} if ring else set[str]()
    # One look into the index for each key, and one for those of all persons.
    while one := connection.scalar(sa.select(sa.func.min(by)).where(by > last)):
        is_persons = one.startswith("@")
        last = "@\U0010ffff" if is_persons else one
        if _hash_in(one) not in here and not (ring and is_persons):
            its = begins_with(by, "@") if is_persons else by == one
            if number := count_rows(connection, letter, its, *found):
                key = "keys of persons" if is_persons else f"key {one}"
                raise ContentsSealed(
                    f"{number:,} letters are encrypted with {key}, which dlq_encryption_keys does not have "
                    f"here; add the key again. Nothing was changed. See {page('encryption')}."
                )


def _hash_in(label: str) -> str:
    return label.rpartition(".")[2]


def narrow_to(connection: Connection, wanted: Filter) -> None:
    """Let the rest of the transaction see only the namespace of the letters of ``wanted``, and write into it.

    :raises NamespaceError: they are of several.
    """
    names = [name for name in seen(connection) if wanted.namespace in (None, name)]
    if len(names) > 1:
        names = [one for one in names if _has_any(connection, replace(wanted, namespace=one))]
    if len(names) > 1:
        raise NamespaceError
    for name in names:
        narrow(connection, name)


def _has_any(connection: Connection, wanted: Filter) -> bool:
    for table in (letter, parked):
        with contextlib.suppress(FilterError):  # the values of parked retries are not kept
            found = conditions(connection, wanted, table)
            if connection.execute(sa.select(table.c.id).where(*found).limit(1)).first():
                return True
    return False


def newest_message(
    connection: Connection, key: tuple[str, str, str], states: Iterable[State]
) -> tuple[str, str]:
    """The message of a group's newest letter in one of ``states``, and the letter's ``sealed_by``; both empty
    if there is none.

    :param key: fingerprint, task and exception type.
    """
    found, columns = list[sa.RowMapping](), (letter.c.task_id, letter.c.sealed_by, letter.c.message)
    for state in sorted(states):
        newest = newest_of(key[0], state, letter.c.last_failed_at, *columns)
        first = newest.where(is_of_group(letter, key)).limit(1)
        found += connection.execute(first).mappings()
    if not found:
        return "", ""
    row = max(found, key=itemgetter("last_failed_at"))
    [shown] = sealing_of(connection).shown(letter, [row])
    return shown["message"], row["sealed_by"]


def newest_of(fingerprint: Any, state: State, *columns: sa.Column[Any]) -> sa.Select[Any]:
    """The letters of a group in one stored state, the newest failure first: the index of fingerprints is in
    the order of time only within a state."""
    its = letter.c.fingerprint == fingerprint, letter.c.state == state.value
    return (
        sa.select(*columns).where(*its).order_by(letter.c.last_failed_at.desc(), letter.c.id.desc())
    )


def is_of_group(table: Any, key: tuple[str, str, str]) -> sa.ColumnElement[bool]:
    """Whether a letter, or a group, has this key."""
    names = ("fingerprint", "task", "exception_type")
    return sa.and_(*(table.c[name] == value for name, value in zip(names, key, strict=True)))


def _named(
    connection: Connection, table: sa.Table, column: str, name: str
) -> sa.ColumnElement[bool]:
    """A full dotted name or its last part. The few full names that end with ``name`` come from the groups, so
    that the index of letters is searched for full names."""
    name = safe_text(name)
    # Parked retries have no groups, and few rows.
    stored = (table if table is parked else group).c[column]
    ending = sa.select(stored).where(stored.endswith(f".{name}", autoescape=True)).distinct()
    # SQLite's LIKE ignores case; names do not.
    same = [item for item in connection.scalars(ending) if item.endswith(f".{name}")]
    return table.c[column].in_([name, *sorted(same)])


def _is(column: sa.Column[str], value: str) -> sa.ColumnElement[bool]:
    """Whether ``column`` has ``value``, as it is stored. A value of blanks would be stored as an empty one,
    which means none."""
    stored = fit_text(column, value)
    return column == stored if stored else sa.false()


def _of_canvas(connection: Connection, table: sa.Table, root: str) -> sa.ColumnElement[bool]:
    """The letters of a canvas. A task that Celery sends names itself as its root. One that another program
    sends may name no root, and is then the root of the tasks that it sends."""
    # Never NULL, because a handler asks for the letters that another one's filter does not match.
    named = sa.and_(table.c.root_id.is_not(None), _is(table.c.root_id, root))
    itself = sa.and_(table.c.task_id == stored_id(root), table.c.root_id.is_(None))
    # Without OR, the index of roots is read in its order.
    names_none = connection.execute(sa.select(table.c.id).where(itself).limit(1)).first()
    return sa.or_(named, itself) if names_none else named


def _has_tag(connection: Connection, column: sa.Column[str], tag: str) -> sa.ColumnElement[bool]:
    """Whether the JSON list in ``column`` has ``tag``. In a list without blanks, only an item begins with a
    quote after a bracket or a comma, because a quote in an item is escaped. (For the tag ``,`` alone, the end
    of one item and the beginning of the next look like it.)"""
    item, contains = dump_json(tag), dialect_of(connection).contains
    return sa.or_(contains(column, f"[{item}"), contains(column, f",{item}"))


def _contains(connection: Connection, text: str, table: sa.Table) -> sa.ColumnElement[bool]:
    text = safe_text(text)
    plain = (table.c.message, table.c.exception_type, table.c.task)
    # Arguments are kept as JSON, which escapes quotes and everything beyond ASCII.
    quoted = {dump_json(form)[1:-1].lower() for form in (text, text.lower(), text.upper())}
    arguments = content if table is letter else table
    lower = dialect_of(connection).ascii_lower
    in_arguments = sa.or_(
        *(
            lower(column).contains(form, autoescape=True)
            for column in (arguments.c.args, arguments.c.kwargs)
            for form in sorted(quoted)
        )
    )
    if table is letter:
        # Checked letter by letter, and only if no other column contains the text.
        found = sa.select(in_arguments).where(OF_LETTER).correlate(letter)
        in_arguments = found.scalar_subquery()
    return sa.or_(*(column.icontains(text, autoescape=True) for column in plain), in_arguments)
