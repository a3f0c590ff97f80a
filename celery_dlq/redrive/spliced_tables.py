"""AMQP: the properties of a message, headers among them, put together from the texts that the store has of
them. A piece of text that was in another message is not read again."""

from __future__ import annotations

import functools
import json
from struct import Struct, pack

from amqp import Message

from celery_dlq.headers import COPY_HEADER, REDRIVE_HEADER
from celery_dlq.letter import DeadLetter
from celery_dlq.redrive.as_written import AsWritten, as_written
from celery_dlq.redrive.tables import entries_of, short, text_entry

#: Longer pieces are of one message, as a rule.
_KEPT = 64

_length, _octets = Struct(">I").pack, Struct("BB").pack

_FLAGS = {name: 0x8000 >> number for number, (name, _) in enumerate(Message.PROPERTIES)}

#: Of a first attempt that does not expire.
_RENEWED = entries_of({"retries": 0, "eta": None, "expires": None})


def spliced_properties(letter: DeadLetter, delivery_mode: int) -> bytes | None:
    """The properties that py-amqp writes of the message that is to be sent for ``letter``
    (:func:`~celery_dlq.redrive.message.prepared`); None where its headers have to be read.

    :param delivery_mode: of messages that have none.
    """
    written = as_written(letter)
    headers = None if written is None else _headers(written, letter.redrive_count + 1)
    if written is None or headers is None:
        return None
    correlation_id, reply_to, priority, mode = written[-1].groups()
    kind = letter.envelope.content_type, letter.envelope.content_encoding
    parts = [
        _beginning(*kind, reply_to is not None),
        _length(len(headers)),
        headers,
        _octets(int(mode or delivery_mode), int(priority or 0)),
        short(correlation_id),
    ]
    if reply_to is not None:
        parts.append(short(reply_to))
    return b"".join(parts)


@functools.lru_cache(maxsize=64)
def _beginning(content_type: str, content_encoding: str, has_reply_to: bool) -> bytes:
    names = ["content_type", "content_encoding", "application_headers", "delivery_mode", "priority"]
    names += ["correlation_id", "reply_to"] if has_reply_to else ["correlation_id"]
    flags = sum(_FLAGS[name] for name in names)
    return pack(">H", flags) + short(content_type) + short(content_encoding)


def _headers(written: AsWritten, redrive: int) -> bytes | None:
    # No quote is within a text but after a backslash: with a comma before it, it begins a name, or it ends
    # a text that ends with a comma, whose piece then is no JSON.
    task, task_id, token, rest, _ = written
    pieces = rest[2:-1].split(',"') if len(rest) > 1 else []
    try:
        entries = [_kept(piece) if len(piece) <= _KEPT else _entry(piece) for piece in pieces]
    except ValueError:
        return None
    opening = _task(task), text_entry("id", task_id), _RENEWED
    return b"".join([*opening, *entries, _marks(token, redrive)])


def _entry(piece: str) -> bytes:
    """The header whose text is a quote and ``piece``.

    :raises ValueError: it is not one whole header.
    """
    if "\\" not in piece:
        name, _, rest = piece.partition('":"')
        if rest.find('"') == len(rest) - 1 >= 0 and '"' not in name:
            return text_entry(name, rest[:-1])
    return entries_of(json.loads(f'{{"{piece}}}'))


_kept = functools.lru_cache(maxsize=1_024)(_entry)


@functools.lru_cache(maxsize=64)
def _task(task: str) -> bytes:
    return text_entry("task", task)


@functools.lru_cache(maxsize=64)
def _marks(token: str, redrive: int) -> bytes:
    return entries_of({COPY_HEADER: token, REDRIVE_HEADER: redrive})
