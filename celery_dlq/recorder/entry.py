"""A message as an entry, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from celery_dlq.codec import decode_table, encode_table, quick_json
from celery_dlq.recorder.layout import Mark


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A message that a worker had accepted and not ended. It has the attributes of kombu's messages that
    make the envelope of a letter."""

    task: str
    accepted_at: datetime
    #: The worker, and the process or thread of its pool that got the message.
    worker: str
    pid: int | None
    #: The identity of the worker's parent process: see :func:`celery_dlq.process.identity`.
    process: str
    #: Whether the broker has certainly forgotten it. If not, the broker may deliver it again.
    is_acknowledged: bool
    #: Whether its body has returned, which the store may not know.
    has_succeeded: bool
    headers: Mapping[str, Any]
    #: Stands for Celery's headers, if the message's own headers do not name its task.
    fields: Mapping[str, Any]
    properties: Mapping[str, Any]
    delivery_info: Mapping[str, Any]
    content_type: str
    content_encoding: str
    body: bytes
    #: Errors of kombu when it undid the compression.
    errors: tuple[str, ...]


def facts_of(
    message: Any, task: str, pid: int | None, now: float, fields: Mapping[str, Any] | None = None
) -> bytes:
    """Everything about a kombu message except its body."""
    facts = {
        "task": task,
        "at": now,
        "pid": pid,
        "headers": message.headers,
        "properties": message.properties,
        "delivery": message.delivery_info,
        "type": message.content_type,
        "encoding": message.content_encoding,
    }
    if fields is not None:
        facts["fields"] = {name: fields.get(name) for name in _FIELDS}
    if message.errors:
        facts["errors"] = [str(error) for error in message.errors]
    text = quick_json(facts)
    return encode_table(facts).encode("ascii") if text is None else text


def accepted_from(facts: bytes, body: bytes, *, worker: str, process: str, marks: Mark) -> Accepted:
    """The inverse of :func:`facts_of`.

    :raises ValueError: the facts are not of this form.
    """
    try:
        table = decode_table(facts.decode("utf-8"))
        return Accepted(
            task=str(table["task"]),
            accepted_at=datetime.fromtimestamp(float(table["at"]), timezone.utc),
            worker=worker,
            process=process,
            pid=table["pid"],
            is_acknowledged=Mark.ACKNOWLEDGED in marks,
            has_succeeded=Mark.SUCCEEDED in marks,
            headers=dict(table["headers"] or {}),
            fields=dict(table.get("fields", ())),
            properties=dict(table["properties"] or {}),
            delivery_info=dict(table["delivery"] or {}),
            content_type=str(table["type"] or ""),
            content_encoding=str(table["encoding"] or ""),
            body=body,
            errors=tuple(table.get("errors", ())),
        )
    except (KeyError, TypeError, OverflowError, OSError) as error:
        raise ValueError(f"not the facts of a message: {error!r}") from error


#: The fields that name a message and its run.
_FIELDS = ("id", "task", "retries", "root_id", "parent_id", "group")
