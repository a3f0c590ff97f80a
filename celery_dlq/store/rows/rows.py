"""Letters and attempts as rows, and back. Everything that is written is made storable here."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from enum import EnumMeta
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, cast, get_type_hints

from sqlalchemy import Column, Table
from sqlalchemy.engine import Connection

from celery_dlq.base.codec import decode_table, dump_json, encode_table, read_record, record_of
from celery_dlq.base.redact import KNOWN, Redactor, clip, safe_text
from celery_dlq.model.fingerprint import Grounds
from celery_dlq.model.headers import release_of
from celery_dlq.model.letter import (
    ATTEMPT_MESSAGE_LIMIT,
    Attempt,
    DeadLetter,
    Envelope,
    Explanation,
)
from celery_dlq.model.states import State
from celery_dlq.store.base import DOUBT_S
from celery_dlq.store.database import tables
from celery_dlq.store.database.dialects import dialect_of
from celery_dlq.store.database.sealing import sealing_of

#: Characters of a long text that are kept: four million bytes at most, which every server takes.
TEXT_LIMIT = 1_048_576

_ID_LIMIT, _DIGEST_SIZE = 255, 16
_INT_LIMIT = 2**31 - 1

#: The failure's own columns: written again with every newer failure.
FAILURE_COLUMNS = (
    "task", "reason", "verdict", "rule", "evidence", "path", "exception_type", "message",
    "traceback", "log", "fingerprint", "raw_fingerprint", "grounds", "last_failed_at", "worker", "pid",
    "release", "tags", "route",
)  # fmt: skip

#: A row as SQLAlchemy gives it (keyed by name or column), or one about to be written.
Row = Mapping[Any, Any]

T = TypeVar("T")
_Value = TypeVar("_Value", Attempt, DeadLetter)


def stored_id(task_id: str) -> str:
    """The key of a task id: the id itself, unless a database would confuse it with another id. Such an id is
    too long, has unstorable characters, or ends with blanks, which MySQL ignores."""
    text = safe_text(task_id)
    if text == task_id and len(text) <= _ID_LIMIT and not text.endswith(" "):
        return text
    digest = hashlib.blake2b(task_id.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_SIZE)
    return f"{text[: _ID_LIMIT - 2 * _DIGEST_SIZE - 1]}~{digest.hexdigest()}"


def replace_rows(
    connection: Connection, table: Table, rows: Sequence[Row], names: Iterable[str]
) -> None:
    """Insert rows. Of a row whose key exists already, replace the columns ``names``."""
    upsert = dialect_of(connection).upsert(
        table, lambda given: {name: given[name] for name in names}
    )
    connection.execute(upsert, rows)


def attempt_row(task_id: str, attempt: Attempt) -> dict[str, Any]:
    """The row of one attempt of the letter stored under ``task_id``."""
    delay_s = attempt.delay_s
    return fit(
        tables.attempt,
        {
            **vars(attempt),
            "task_id": task_id,
            "message": clip(attempt.message, ATTEMPT_MESSAGE_LIMIT),
            "evidence": clip(attempt.evidence, tables.EVIDENCE_WIDTH),
            "verdict": attempt.verdict.value,
            "delay_s": delay_s if delay_s is None or math.isfinite(delay_s) else None,
        },
    )


def letter_row(letter: DeadLetter) -> dict[str, Any]:
    """The row of a letter that has just died, with that of its contents; the columns of claims and closing
    are empty."""
    given = dict(zip(_SAME_NAME, _same(letter), strict=True))
    return {
        **fit(tables.letter, {**given, **vars(letter.explanation)}),
        **envelope_values(letter.envelope),
        **_UNCLAIMED,
        **_converted(letter),
        "grounds": letter.grounds and dump_json(record_of(letter.grounds)),
    }


def _converted(letter: DeadLetter) -> dict[str, str]:
    # ASCII already, and never cut: half a JSON text cannot be read.
    return {
        "reason": letter.reason.value,
        "verdict": letter.verdict.value,
        "args": dump_json(letter.args),
        "kwargs": dump_json(letter.kwargs),
        "tags": dump_json(list(letter.tags)),
    }


def part_of(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    """The values of ``row`` that belong in ``table``, which is that of the letters or of their contents."""
    return {name: value for name, value in row.items() if name in table.c}


def envelope_values(envelope: Envelope) -> dict[str, Any]:
    """The columns of a letter that hold its message."""
    plain = dict(zip(_ENVELOPE_NAMES, _of_envelope(envelope), strict=True))
    return {
        **fit(tables.letter, plain),
        "headers": encode_table(envelope.headers),
        "properties": encode_table(envelope.properties),
    }


def storable(letter: DeadLetter, redactor: Redactor = KNOWN) -> DeadLetter:
    """``letter`` with the id under which it is stored, with numbers that fit into every database, and without
    secrets in the texts that are searched."""
    attempts = (
        _changed(item, redrive=whole(item.redrive), number=whole(item.number))
        for item in letter.attempts
    )
    return _changed(
        letter,
        task_id=stored_id(letter.task_id),
        redrive_count=whole(letter.redrive_count),
        attempts=tuple(attempts),
        **{name: redactor.stored(getattr(letter, name)) for name in _SEARCHED},
    )


def without_secrets(row: Row, stored: Callable[[Any], Any]) -> dict[str, Any]:
    """The row of a letter without secrets in the searched columns. When the row was written, the settings may
    have hidden fewer secrets.

    :param stored: of a :class:`~celery_dlq.base.redact.Redactor`.
    """
    shown = {name: dump_json(stored(json.loads(row[name]))) for name in ("args", "kwargs")}
    return {**row, "message": stored(row["message"]), **shown}


def _changed(value: _Value, **fields: Any) -> _Value:
    """``value`` with other ``fields``. If nothing changes, which is nearly always so, it is ``value`` itself,
    because a copy costs time."""
    if all(getattr(value, name) == field for name, field in fields.items()):
        return value
    return replace(value, **fields)


def letter_from(row: Row, attempts: Iterable[Row] = ()) -> DeadLetter:
    """The letter of a row. Columns that were not selected are empty."""
    whole = {**_EMPTY, **row, **_as_shown(row)}
    return read_row(
        DeadLetter,
        whole,
        explanation=read_row(Explanation, whole),
        args=_parsed(whole["args"]),
        kwargs=_parsed(whole["kwargs"]),
        tags=tuple(_parsed(whole["tags"]) or ()),
        grounds=read_record(Grounds, json.loads(whole["grounds"])) if whole["grounds"] else None,
        attempts=tuple(read_row(Attempt, item) for item in attempts),
        envelope=envelope_from(whole),
    )


def _as_shown(row: Row) -> dict[str, Any]:
    """The values of a claimed letter as screens show them: its row has the values after the redrive."""
    if not row.get("is_claimed"):
        return {"claim_token": None, "lease_expires_at": None}
    return {"state": State.CLAIMED.value, "redrive_count": row["redrive_count"] - 1}


def envelope_from(row: Row) -> Envelope:
    """The message of a row."""
    headers, properties = decode_table(row["headers"]), decode_table(row["properties"])
    return read_row(Envelope, row, headers=headers, properties=properties)


def read_row(kind: type[T], row: Row, **given: Any) -> T:
    """The value, of a dataclass, that a row holds: each field is in the column of its name, an enum by its
    value.

    :param given: the fields that have no such column, or another form in it.
    """
    stored = {
        name: row[name] if read is None else read(row[name])
        for name, read in _fields_of(cast("Any", kind)).items()
        if name in row and name not in given
    }
    return kind(**stored, **given)


@cache
def _fields_of(kind: type[Any]) -> Mapping[str, EnumMeta | None]:
    """The fields of a dataclass, each with its type if that is an enum."""
    hints = get_type_hints(kind)
    return {
        item.name: hint if isinstance(hint := hints[item.name], EnumMeta) else None
        for item in fields(kind)
    }


def parked_row(
    letter: DeadLetter, redactor: Redactor, now: datetime, ahead: timedelta
) -> dict[str, Any]:
    """The row of a retry that is to wait.

    :param now: the time by the database's clock.
    :param ahead: how far this is ahead of the clock that set ``due_at``.
    """
    assert letter.due_at is not None, "a parked retry is due some time"  # noqa: S101
    due_at, release = letter.due_at + ahead, release_of(letter.envelope.headers)
    # The sender may have sent its message as the first copy.
    is_first = release is not None and release[0] == letter.parking
    if is_first:
        due_at = max(due_at, now + timedelta(seconds=DOUBT_S))
    hidden = {name: redactor.stored(getattr(letter, name)) for name in _SEARCHED}
    letter = letter.with_(**hidden)
    plain = {name: getattr(letter, name) for name in _PARKED_NAMES}
    record = letter.with_(
        envelope=letter.envelope.with_body(b""), attempt_count=len(letter.attempts)
    )
    return {
        **fit(tables.parked, {**plain, "task_id": stored_id(letter.task_id)}),
        "state": State.PARKED.value,
        "place": letter.parking.partition(".")[0],
        **_converted(letter),
        "due_at": due_at,
        "next_at": due_at,
        "copies": int(is_first),
        "record": json.dumps(record.to_dict(), default=str).encode("ascii"),
        "body": letter.envelope.body,
    }


def parked_letter(row: Row) -> DeadLetter:
    """The retry of a row, due by the database's clock."""
    kept = DeadLetter.from_dict(json.loads(row["record"]))
    return kept.with_(envelope=kept.envelope.with_body(row["body"]), due_at=row["due_at"])


def shown_parked(connection: Connection, row: Row) -> DeadLetter:
    """The retry of a row as it is stored. If it cannot be read, it has the columns that are not sealed, and
    says why."""
    [shown] = sealing_of(connection).shown(tables.parked, [row])
    if "unreadable" not in shown:
        return parked_letter(shown)
    others = {column.name: "" for column in tables.letter.columns if column.name not in _EMPTY}
    nothing = dict.fromkeys(("pid", "root_id", "parent_id", "group_id", "correlation_id"))
    counts = dict.fromkeys(("redrive_count", "attempt_count"), 0)
    first = {"first_failed_at": row["last_failed_at"]}
    return letter_from({**others, **nothing, **counts, **first, **shown})


def bare(letter: DeadLetter) -> DeadLetter:
    """``letter`` as a list shows it: without attempts, traceback, log and message."""
    envelope = replace(letter.envelope, body=b"", headers={}, properties={})
    return letter.with_(attempts=(), traceback="", log="", envelope=envelope)


#: Fields that are searched and may have secrets. A search must not find what no screen shows.
_SEARCHED = ("message", "args", "kwargs")

#: Columns of what people have written: notes, owners and reasons.
_SAID = frozenset({"cause", "closed_reason", "note", "owner", "recipient", "why"})

#: Fields of a letter that are columns of the same name and type, for a parked retry.
_PARKED_NAMES = (
    "parking", "task_id", "task", "exception_type", "message", "fingerprint", "last_failed_at",
    "worker", "queue", "route", "release", "root_id", "rule", "namespace",
)  # fmt: skip

#: Fields of a letter, and of its envelope, that have another form in the column of their name.
_CONVERTED = ("state", "reason", "args", "kwargs", "tags", "grounds", "headers", "properties")

_COLUMNS = {*tables.letter.columns.keys(), *tables.content.columns.keys()} - {*_CONVERTED}
_SAME_NAME, _ENVELOPE_NAMES = (
    tuple(item.name for item in fields(kind) if item.name in _COLUMNS)
    for kind in (DeadLetter, Envelope)
)

# In one call each: a storm of failures makes thousands of rows.
_same, _of_envelope = attrgetter(*_SAME_NAME), attrgetter(*_ENVELOPE_NAMES)

#: The columns of claims and closing, in the row of a letter that has just died.
_UNCLAIMED: dict[str, Any] = {
    "state": State.DEAD.value, "claim_token": None, "lease_expires_at": None,
    "closed_at": None, "closed_by": "", "closed_reason": "",
}  # fmt: skip

#: Stands for the columns that a list or a claim leaves out.
_EMPTY: dict[str, Any] = {
    "traceback": "", "log": "", "evidence": "", "path": "", "body": b"",
    "args": None, "kwargs": None, "tags": None, "headers": "{}", "properties": "{}",
    "closed_at": None, "closed_by": "", "closed_reason": "", "route": "", "raw_fingerprint": "",
    "grounds": None,
}  # fmt: skip


def _width(column: Column[Any]) -> int | None:
    return getattr(column.type, "length", None)


_WIDTHS = {
    table: {column.name: _width(column) for column in table.columns}
    for table in tables.metadata.tables.values()
}
# A letter is made storable before it is divided into the rows of two tables.
_WIDTHS[tables.letter] |= _WIDTHS[tables.content]


def fit(table: Table, values: dict[str, Any]) -> dict[str, Any]:
    """``values`` with every text storable and cut to its column, and without secrets in what people have
    written. A short text loses the blanks at its end, because MySQL ignores them when it compares texts."""
    widths = _WIDTHS[table]
    return {
        key: _fit_text(key, value, widths[key]) if isinstance(value, str) else value
        for key, value in values.items()
    }


def fit_text(column: Column[str], text: str) -> str:
    """``text`` as :func:`fit` makes it for ``column``."""
    return _fit_text(column.name, text, _width(column))


def _fit_text(name: str, text: str, width: int | None) -> str:
    if not text:
        return text
    text = safe_text(KNOWN.text(text) if name in _SAID else text)
    return clip(text, TEXT_LIMIT) if width is None else text[:width].rstrip(" ")


def _parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def whole(number: int) -> int:
    """``number``, limited to the range from 0 to the largest INTEGER of every database."""
    return max(0, min(number, _INT_LIMIT))
