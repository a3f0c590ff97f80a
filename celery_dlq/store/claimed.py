"""The rows that a claim reads, and the letters of them. A redrive makes a letter of each in as little time as
it can: what it takes to make them bounds how many go out in a second."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Row, case, func, select
from sqlalchemy.engine import Connection

from celery_dlq.letter import DeadLetter, Envelope, Explanation
from celery_dlq.states import Reason, State, Verdict
from celery_dlq.store import tables
from celery_dlq.store.drivers import MUCH
from celery_dlq.written_table import WrittenHeaders, WrittenTable

letter = tables.letter

_LETTER = (
    "task_id",
    "task",
    "first_failed_at",
    "last_failed_at",
    "release",
    "canvas",
    "redrive_count",
)
_ENVELOPE = ("body", "content_type", "content_encoding", "exchange", "routing_key", "queue")
_READ = ("headers", "properties", "reason", "verdict", "rule")

#: Bytes of a body up to which it is read along. A larger one is read by itself, when it is known that its
#: letter is claimed.
INLINE = 32_768

#: Bytes of the bodies that are read together, by a claim or otherwise; but one letter is, in any case.
TOGETHER = 16 * 1_048_576

SIZE = func.length(letter.c.body)
#: The body, where it is read along.
BODY = case((SIZE <= INLINE, letter.c.body))

#: What is selected: first what is a field of the letter, then of its envelope, then what has to be read. At
#: the end come the letter's number, its last claim, and the size of its body.
COLUMNS = (
    *(letter.c[name] for name in _LETTER),
    BODY.label("body"),
    *(letter.c[name] for name in (*_ENVELOPE[1:], *_READ, "id", "claim_token")),
    SIZE.label("size"),
)

_ENVELOPE_AT, _READ_AT = len(_LETTER), len(_LETTER) + len(_ENVELOPE)
_READ_END = _READ_AT + len(_READ)

#: What a redrive does without, and what is the same of all.
_SAME: dict[str, Any] = {
    **{item.name: item.default for item in fields(DeadLetter)},
    **dict.fromkeys(("exception_type", "message", "traceback", "fingerprint", "worker"), ""),
    **dict.fromkeys(("args", "kwargs", "pid", "root_id", "parent_id", "group_id", "correlation_id")),
    "state": State.CLAIMED, "attempts": (), "tags": (),
}  # fmt: skip

_REASONS = {reason.value: reason for reason in Reason}

T = TypeVar("T")


def within(rows: Sequence[Row[Any]], most: int = TOGETHER) -> Sequence[Row[Any]]:
    """The first of ``rows`` whose bodies have at most so many bytes together, and one in any case."""
    total = itertools.accumulate(row.size for row in rows)
    return rows[: max(1, sum(size <= most for size in total))]


def read_bodies(connection: Connection, rows: Sequence[Row[Any]]) -> dict[int, bytes]:
    """The bodies that were too large to be read along, by the letter's number."""
    missing = [row.id for row in rows if row.size > INLINE]
    if not missing:
        return {}
    bodies = select(letter.c.id, letter.c.body).where(letter.c.id.in_(missing))
    bodies = bodies.execution_options(**{MUCH: True})
    return {row.id: row.body for row in connection.execute(bodies)}


def claimed_letter(
    row: Sequence[Any], body: bytes | None, token: str, lease_until: datetime
) -> DeadLetter:
    """The letter of a row of :data:`COLUMNS`, as it was before it was claimed, with its claim.

    :param body: where it was not read along.
    """
    columns = tuple(row)
    headers, properties, reason, verdict, rule = columns[_READ_AT:_READ_END]
    envelope = dict(zip(_ENVELOPE, columns[_ENVELOPE_AT:_READ_AT], strict=True))
    if body is not None:
        envelope["body"] = body
    envelope["headers"], envelope["properties"] = WrittenHeaders(headers), WrittenTable(properties)
    values = _SAME.copy()
    values.update(zip(_LETTER, columns, strict=False))
    values["reason"], values["explanation"] = _REASONS[reason], _explanation(verdict, rule)
    values["envelope"] = _made(Envelope, envelope)
    values["claim_token"], values["lease_expires_at"] = token, lease_until
    return _made(DeadLetter, values)


@functools.lru_cache(maxsize=1_024)
def _explanation(verdict: str, rule: str) -> Explanation:
    return Explanation(verdict=Verdict(verdict), rule=rule)


def _made(kind: type[T], values: dict[str, Any]) -> T:
    # The constructor of a frozen dataclass makes a call for each field.
    value = object.__new__(kind)
    object.__setattr__(value, "__dict__", values)
    return value
