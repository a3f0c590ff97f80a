"""The format of a line: writes letters and outcomes, and finds them in files and logs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

from celery_dlq.model.letter import DeadLetter, Outcome

logger = logging.getLogger(__name__)

#: The records of a spool.
Record = DeadLetter | Outcome

_KINDS: dict[str, type[DeadLetter] | type[Outcome]] = {"letter": DeadLetter, "outcome": Outcome}

#: The beginning of every record, whichever release wrote it.
_HEAD = '{"kind"'

_JSON = json.JSONDecoder()


class NewerRecord(ValueError):
    """A whole record that this release cannot read, because a newer one wrote it."""


def encode(record: Record) -> bytes:
    """One spool line."""
    kind = "letter" if isinstance(record, DeadLetter) else "outcome"
    text = json.dumps({"kind": kind, **record.to_dict()}, default=str)
    return text.encode("ascii") + b"\n"


def decode(line: bytes) -> Record:
    """The record of one spool line.

    :raises NewerRecord: a newer release wrote the line.
    :raises ValueError: the line is torn, or is not a record.
    """
    return _record_of(json.loads(line))


def find_record(line: str) -> Record | None:
    """The record in a line of a log, which is plain text or a JSON object; None if there is none.

    :raises NewerRecord: a newer release wrote the record.
    :raises ValueError: a record begins in this line, but is cut off.
    """
    start = line.find(_HEAD)
    if start >= 0:
        data, _end = _JSON.raw_decode(line, start)
        return _record_of(data)
    if _HEAD.replace('"', '\\"') not in line:
        return None
    # The formatter of the log puts each message into a JSON object.
    found = (find_record(text) for text in _texts(json.loads(line)))
    return next((record for record in found if record is not None), None)


def log_whole(line: bytes, error: Exception) -> None:
    """Write one line to the log, where :func:`find_record` finds it: the last resort when neither the store
    nor the disk accepts a letter."""
    logger.critical(
        "dead letter neither stored nor spooled (%s); once the store is back, give this log to "
        "celery -A <app> dlq spool import: %s", error, line.decode("ascii", "replace").strip(),
    )  # fmt: skip


def _record_of(data: Any) -> Record:
    if not isinstance(data, dict) or not {"kind", "format"} <= data.keys():
        raise ValueError("not a spool record")
    kind = data.pop("kind")
    try:
        return _KINDS[kind].from_dict(data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # Whole JSON with a kind and a format is not torn: it has a new kind, field, reason or format.
        raise NewerRecord(
            f"a {kind} of format {data['format']} that this release cannot read ({error!r})"
        ) from error


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
