"""A message for Redis, put together from the texts that the store has of it: nearly all letters go back with
their headers as they are, under another beginning. To read and write them took half of a redrive's time."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from json import dumps
from typing import NamedTuple

from celery_dlq.headers import COPY_HEADER, REDRIVE_HEADER
from celery_dlq.letter import DeadLetter
from celery_dlq.redrive.fast import in_base64
from celery_dlq.states import State
from celery_dlq.written_table import WrittenHeaders, WrittenTable

#: The properties that nearly all messages have, in the order in which they are captured.
_PROPERTIES = re.compile(
    r'\{"correlation_id":"[^"\\]*"(?:,"reply_to":"[^"\\]*")?'
    r'(?:,"priority":(\d))?(,"delivery_mode":[12])?\}'
)


class Spliced(NamedTuple):
    """A message for a list, as JSON."""

    priority: int
    text: str


def spliced(letter: DeadLetter, delivery_mode: int, next_tag: Callable[[], str]) -> Spliced | None:
    """What kombu writes of the message that is to be sent for ``letter``
    (:func:`~celery_dlq.redrive.message.prepared`), in other words that mean the same to who reads it. None
    where only kombu can say it.

    :param delivery_mode: of messages that have none.
    :param next_tag: gives the tag of a delivery; nothing in it has to be escaped.
    """
    envelope = letter.envelope
    headers = _headers(letter)
    found = _properties(envelope.properties)
    if (
        headers is None
        or found is None
        or not (envelope.content_type and envelope.content_encoding)
    ):
        return None
    body = in_base64(envelope.body)
    kind = _kind(envelope.content_type, envelope.content_encoding)
    priority, mode = found.groups()
    missing = _missing(priority is None, None if mode else delivery_mode)
    properties = f"{found[0][:-1]},{missing}{_delivery(envelope.queue)}"
    text = (
        f'{{"body":"{body}",{kind},"headers":{headers},"properties":{properties}"{next_tag()}"}}}}'
    )
    return Spliced(int(priority or 0), text)


def _headers(letter: DeadLetter) -> str | None:
    headers, token = letter.envelope.headers, letter.claim_token
    if not isinstance(headers, WrittenHeaders) or headers.opening is None or token is None:
        return None
    task, task_id = headers.opening.groups()
    is_as_written = task_id == letter.task_id and letter.due_at is None
    if not is_as_written or letter.state is State.PARKED:
        return None
    marks = _marks(token, letter.redrive_count + 1)
    return f'{{"task":"{task}","id":"{task_id}",{marks}{headers.text[headers.opening.end() :]}'


def _properties(properties: object) -> re.Match[str] | None:
    return _PROPERTIES.fullmatch(properties.text) if isinstance(properties, WrittenTable) else None


@functools.lru_cache(maxsize=64)
def _marks(token: str, redrive: int) -> str:
    """The rest of the opening, of a first attempt; and which redrive it is."""
    marks = {
        "retries": 0, "eta": None, "expires": None, COPY_HEADER: token, REDRIVE_HEADER: redrive,
    }  # fmt: skip
    return dumps(marks, separators=(",", ":"))[1:-1]


@functools.lru_cache(maxsize=64)
def _kind(content_type: str, content_encoding: str) -> str:
    return f'"content-encoding":{dumps(content_encoding)},"content-type":{dumps(content_type)}'


@functools.lru_cache(maxsize=64)
def _missing(priority: bool, delivery_mode: int | None) -> str:
    """The properties that kombu gives to each message that has none."""
    mode = "" if delivery_mode is None else f'"delivery_mode":{delivery_mode},'
    return mode + ('"priority":0,' if priority else "")


@functools.lru_cache(maxsize=1_024)
def _delivery(queue: str) -> str:
    info = dumps({"exchange": "", "routing_key": queue})
    return f'"delivery_info":{info},"body_encoding":"base64","delivery_tag":'
