"""Letters that a search is likely to find, from indexes: the words of a message are those of its group, and
its ids are among its values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import ColumnElement, Select, or_, select, union_all
from sqlalchemy.engine import Connection

from celery_dlq.model.fingerprint import fixed_parts, variable_parts
from celery_dlq.model.states import State
from celery_dlq.model.terms import MESSAGE_LIMIT, hash_of_value
from celery_dlq.store.base import Filter
from celery_dlq.store.database import tables
from celery_dlq.store.rows.query import group_conditions, in_states
from celery_dlq.store.rows.terms import newest_with, newest_with_all

letter, group = tables.letter, tables.group

#: Groups whose letters are taken: of those that contain the text, the ones that failed last.
_GROUPS = 10

#: Groups that are read to find them. Their words are compared here, because a database cannot tell the words
#: of a message from its variable parts.
_READ = 1_000


def likely(connection: Connection, wanted: Filter, limit: int) -> set[int]:
    """The ids of letters that probably match ``wanted``; few of them may not.

    :param limit: the most letters of one group and one state.
    """
    if not wanted.search:
        return newest_with_all(connection, wanted)
    texts = {wanted.search.strip(), *variable_parts(wanted.search)[:MESSAGE_LIMIT]}
    found = {
        number for text in texts for number in newest_with(connection, hash_of_value(text), None)
    }
    parts = list(_of_groups(connection, wanted, wanted.search, limit))
    if parts:
        found.update(connection.execute(union_all(*parts)).scalars())
    return found


def _of_groups(
    connection: Connection, wanted: Filter, text: str, limit: int
) -> Iterator[Select[Any]]:
    """The newest letters of each group that contains ``text``, by state: the index of fingerprints is in the
    order of time only within a state."""
    for fingerprint in _groups_with(connection, wanted, text):
        for state in sorted(wanted.wanted_states - {State.PARKED}):
            found = [letter.c.fingerprint == fingerprint, in_states([state])]
            theirs = select(letter.c.id, letter.c.last_failed_at).where(*found)
            newest = theirs.order_by(letter.c.last_failed_at.desc(), letter.c.id.desc())
            yield select(newest.limit(limit).subquery().c.id)


def _groups_with(connection: Connection, wanted: Filter, text: str) -> list[str]:
    named = (group.c.task, group.c.exception_type, group.c.message)
    rows = connection.execute(
        select(group.c.fingerprint, *named)
        .where(*group_conditions(connection, group, wanted), _in_any(named, text))
        .order_by(group.c.last_seen_at.desc())
        .limit(_READ)
    )
    lowered = text.lower()
    found = dict.fromkeys(
        row.fingerprint
        for row in rows
        for words in (row.task, row.exception_type, *fixed_parts(row.message))
        if lowered in words.lower()
    )
    return list(found)[:_GROUPS]


def _in_any(columns: Iterable[ColumnElement[str]], text: str) -> ColumnElement[bool]:
    return or_(*(column.icontains(text, autoescape=True) for column in columns))
