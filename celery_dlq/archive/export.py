"""Writes the letters of the archive as one Parquet file, for DuckDB, Trino or Spark."""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from celery_dlq.archive.reading import Finding, Found, Search
from celery_dlq.archive.segment import Line, moment
from celery_dlq.base.redact import safe_text
from celery_dlq.errors import ArchiveError, MissingExtra

if TYPE_CHECKING:
    import pyarrow

#: Columns of the letter, by their type. The message of the exception is among the contents: it may repeat
#: arguments.
_TEXTS = (
    "task_id", "task", "state", "reason", "exception_type", "fingerprint", "queue", "route", "release",
    "worker", "closed_by", "closed_reason",
)  # fmt: skip
_TIMES = ("first_failed_at", "last_failed_at", "closed_at")
_NUMBERS = ("redrive_count", "attempt_count")
_CONTENTS = ("message", "headers", "properties", "args", "kwargs", "traceback", "log")


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The result of an export."""

    letters: int
    #: Segments that could not be read.
    findings: tuple[Finding, ...]


def export(search: Search, target: Path, *, contents: bool = False) -> Exported:
    """Write the letters that ``search`` finds to the file ``target``, which appears as a whole. One segment
    at a time is in memory.

    :param contents: whether to include messages, arguments, tracebacks, log lines and the messages of
        exceptions, with the secrets in them.
    :raises MissingExtra: ``pyarrow`` is not installed.
    :raises ArchiveError: the archive failed, or the file cannot be written.
    """
    need_pyarrow()
    part = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
    try:
        letters = _write(search, part, contents=contents)
        part.replace(target)
    except OSError as error:
        raise ArchiveError(
            f"{target} cannot be written ({error.strerror or error}); choose another file."
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return Exported(letters=letters, findings=tuple(search.findings))


def need_pyarrow() -> None:
    """Check that Parquet files can be written here.

    :raises MissingExtra: ``pyarrow`` is not installed.
    """
    if find_spec("pyarrow") is None:
        raise MissingExtra(
            "Parquet files need the package pyarrow; run: pip install 'celery-dlq[parquet]'"
        )


def _write(search: Search, path: Path, *, contents: bool) -> int:
    import pyarrow
    from pyarrow import parquet

    schema, letters = _schema(contents=contents), 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for _segment, found in groupby(search, key=lambda one: one.segment.id):
            rows = [_row(one, contents=contents) for one in found]
            writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
            letters += len(rows)
    return letters


def _schema(*, contents: bool) -> pyarrow.Schema:
    import pyarrow

    return pyarrow.schema(
        [
            *((name, pyarrow.string()) for name in _TEXTS),
            *((name, pyarrow.timestamp("us", tz="UTC")) for name in _TIMES),
            *((name, pyarrow.int32()) for name in _NUMBERS),
            ("segment", pyarrow.string()),
            *((name, pyarrow.string()) for name in (_CONTENTS if contents else ())),
            *([("body", pyarrow.binary())] if contents else ()),
        ]
    )


def _row(found: Found, *, contents: bool) -> dict[str, Any]:
    letter = found.line["letter"]
    row = {
        **_converted(letter, _TEXTS, safe_text),
        **_converted(letter, _TIMES, moment),
        **_converted(letter, _NUMBERS, int),
        "segment": found.segment.id,
    }
    if contents:
        content = {**found.line["content"], "message": letter.get("message")}
        row |= _converted(content, _CONTENTS, safe_text) | _converted(content, ("body",), _body)
    return row


def _converted(line: Line, names: tuple[str, ...], convert: Callable[[Any], Any]) -> dict[str, Any]:
    """These fields; None for those that the release that wrote the line did not have."""
    given = {name: line.get(name) for name in names}
    return {name: None if value is None else convert(value) for name, value in given.items()}


def _body(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
