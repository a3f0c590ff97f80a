"""A message for Redis, put together from the texts that the store has of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from json import dumps
from typing import NamedTuple

from celery_dlq.headers import COPY_HEADER, REDRIVE_HEADER
from celery_dlq.letter import DeadLetter
from celery_dlq.redrive.as_written import as_written
from celery_dlq.redrive.fast import in_base64


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
    written = as_written(letter)
    if written is None:
        return None
    envelope, (task, task_id, token, headers, found) = letter.envelope, written
    marks = _marks(token, letter.redrive_count + 1)
    kind = _kind(envelope.content_type, envelope.content_encoding)
    priority, mode = found["priority"], found["delivery_mode"]
    rest = _rest(priority is None, None if mode else delivery_mode, envelope.queue)
    text = (
        f'{{"body":"{in_base64(envelope.body)}",{kind},'
        f'"headers":{{"task":"{task}","id":"{task_id}",{marks}{headers},'
        f'"properties":{found.string[:-1]},{rest}"{next_tag()}"}}}}'
    )
    return Spliced(int(priority or 0), text)


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


@functools.lru_cache(maxsize=1_024)
def _rest(priority: bool, delivery_mode: int | None, queue: str) -> str:
    """The properties that kombu gives to each message: the first two where it has none."""
    mode = "" if delivery_mode is None else f'"delivery_mode":{delivery_mode},'
    missing = mode + ('"priority":0,' if priority else "")
    info = dumps({"exchange": "", "routing_key": queue})
    return f'{missing}"delivery_info":{info},"body_encoding":"base64","delivery_tag":'
