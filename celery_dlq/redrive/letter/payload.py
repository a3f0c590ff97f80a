"""Message bodies: decoded if the app accepts their content type, and encoded with the same serializer."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from kombu import serialization
from kombu.exceptions import SerializerNotInstalled

from celery_dlq.base.codec import read_json
from celery_dlq.base.unpack import READ_LIMIT, SHOWN_LIMIT, check_size, unpack
from celery_dlq.errors import BodyTooLarge, PayloadError
from celery_dlq.model.assignment import signature_for_messages
from celery_dlq.model.headers import COMPRESSED_HEADER, has_header
from celery_dlq.model.letter import NO_TASK, DeadLetter, Envelope
from celery_dlq.redrive.broker.message import reason

#: Names of the positional parameters of a task, in order; None if the task is unknown.
Parameters = Sequence[str] | None

_JSON = "application/json"

#: The canvases that lead to the body of a chord.
_IN_CHORDS = frozenset({"chord", "chain"})

#: Serializations without references: a decoded value is never larger than its text suggests.
_FLAT = frozenset({_JSON, "application/x-msgpack"})

#: The most values in a body of any other serialization.
_VALUES = 2_000_000


class Payload(NamedTuple):
    """The body of a task message, decoded."""

    args: list[Any]
    kwargs: dict[str, Any]
    #: Everything else in the body: callbacks, errbacks, chain and chord. Celery's first message protocol has
    #: no headers, so there it is the whole rest of the message.
    rest: dict[str, Any]
    is_first_protocol: bool = False


def accepted_by(app: Any) -> frozenset[str]:
    """The content types that the workers of ``app`` read."""
    return frozenset(serialization.prepare_accept_content(app.conf.accept_content or ["json"]))


def task_of(letter: DeadLetter) -> str:
    """The task that the message of ``letter`` would run. The task that failed last may be another one, if a
    redrive replaced it."""
    named = letter.envelope.headers.get("task")
    return named if isinstance(named, str) and letter.task != NO_TASK else letter.task


def read_payload(
    envelope: Envelope,
    accepted: frozenset[str],
    *,
    in_outline: bool = False,
    at_most: int = READ_LIMIT,
) -> Payload:
    """The decoded body of ``envelope``.

    :param in_outline: values inside the arguments may stay in their JSON form.
    :param at_most: the most bytes of the unpacked body.
    :raises BodyTooLarge: the body has more.
    :raises PayloadError: it cannot be decoded, its content type is not accepted, or it is not a task's body.
    """
    is_json = envelope.content_type == _JSON and not _is_compressed(envelope)
    is_plain = in_outline and is_json and _JSON in accepted
    try:
        # Celery's own decoder inspects each JSON object, which takes most of the time.
        check_size(envelope.body, at_most)
        body = read_json(envelope.body) if is_plain else _decoded(envelope, accepted, at_most)
    except BodyTooLarge:
        raise
    except Exception as error:
        step = ""
        if isinstance(error, SerializerNotInstalled):
            step = "accept its content type, or "
        elif isinstance(error.__context__, (AttributeError, ImportError)):
            step = "bring back what its pickle names, or "
        raise PayloadError(
            f"its body cannot be decoded: {reason(error)}; {step}discard it"
        ) from error
    return _as_first_protocol(body) if isinstance(body, dict) else _as_second_protocol(body)


class OpenLetter:
    """A letter with its body, which is decoded once, when it is first needed.

    :param accepted: the content types that may be decoded.
    """

    def __init__(self, letter: DeadLetter, accepted: frozenset[str]) -> None:
        self.letter: DeadLetter = letter
        self._accepted = accepted

    @cached_property
    def payload(self) -> Payload:
        """The decoded body.

        :raises PayloadError: it cannot be read.
        """
        return read_payload(self.letter.envelope, self._accepted)

    @property
    def outline(self) -> Payload:
        """The body for checks: values inside the arguments may stay in their JSON form.

        :raises PayloadError: it cannot be read.
        """
        # A project may have registered another serializer for JSON, whose messages have another form.
        is_kombus = serialization.registry.type_to_name.get(_JSON) == "json"
        # The body of a chord may be sent again, so it is decoded in full.
        if "payload" in vars(self) or self.letter.canvas in _IN_CHORDS or not is_kombus:
            return self.payload
        return read_payload(self.letter.envelope, self._accepted, in_outline=True)

    def with_(self, **changes: Any) -> OpenLetter:
        """This letter with ``changes``. If its message has another body then, that is decoded again."""
        new = OpenLetter(self.letter.with_(**changes), self._accepted)
        before, after = self.letter.envelope, new.letter.envelope
        is_same = before.body is after.body and _is_compressed(before) == _is_compressed(after)
        if is_same and "payload" in vars(self):
            new.payload = self.payload
        return new


def write_payload(payload: Payload, envelope: Envelope) -> Envelope:
    """``envelope`` with ``payload`` as its body, in the same serialization.

    :raises PayloadError: the serializer cannot encode it.
    """
    name = serialization.registry.type_to_name.get(envelope.content_type)
    written: Any = (payload.args, payload.kwargs, payload.rest)
    if payload.is_first_protocol:
        written = {**payload.rest, "args": payload.args, "kwargs": payload.kwargs}
    try:
        content_type, encoding, body = serialization.dumps(written, name or "unknown")
    except Exception as error:
        raise PayloadError(
            f"{name or envelope.content_type} cannot encode it: {reason(error)}"
        ) from error
    headers = {
        header: value
        for header, value in envelope.headers.items()
        # The new body is not compressed.
        if header != COMPRESSED_HEADER
        and not (header == "compression" and _is_compressed(envelope))
    }
    return replace(
        envelope,
        body=body if isinstance(body, bytes) else str(body).encode("utf-8"),
        content_type=content_type,
        content_encoding=encoding,
        headers=headers,
    )


class Linked(NamedTuple):
    """The tasks that ran when a message died."""

    #: The tasks that were linked to its failure.
    tasks: tuple[str, ...] = ()
    #: Why its body was not opened to find them; empty when it was.
    unread: str = ""


def linked_to(envelope: Envelope) -> Linked:
    """The tasks that were linked to the failure of a message. Only JSON bodies are read: nothing is
    unpickled for display."""
    try:
        payload = read_payload(envelope, frozenset({_JSON}), in_outline=True, at_most=SHOWN_LIMIT)
    except BodyTooLarge as error:
        return Linked(unread=f"{error}, so it was not opened")
    except PayloadError:
        return Linked()
    linked = payload.rest.get("errbacks")
    found = linked if isinstance(linked, list) else ()
    return Linked(tuple(str(one.get("task")) for one in found if isinstance(one, dict)))


def _decoded(envelope: Envelope, accepted: frozenset[str], at_most: int) -> Any:
    body = envelope.body
    if _is_compressed(envelope):
        body = unpack(body, envelope.headers["compression"], at_most)
    read = serialization.loads(body, envelope.content_type, envelope.content_encoding, accepted)
    if envelope.content_type not in _FLAT:
        _check_values(read)
    return read


def _check_values(body: Any) -> None:
    """Check that a decoded body can be compared and encoded: a few lines of YAML, or a small pickle, can
    unfold to a billion values, or to a value that contains itself.

    :raises BodyTooLarge: it has too many values.
    """
    left, count = [body], 0
    while left:
        value = left.pop()
        count += 1
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, (list, tuple, set, frozenset)):
            left += value
        if count + len(left) > _VALUES:
            raise BodyTooLarge(f"its body unfolds to more than {_VALUES:,} values")


def _is_compressed(envelope: Envelope) -> bool:
    return has_header(envelope.headers, COMPRESSED_HEADER) and "compression" in envelope.headers


def _as_second_protocol(body: Any) -> Payload:
    if not isinstance(body, list | tuple) or len(body) != 3 or not isinstance(body[2], dict | None):
        raise PayloadError("its body is not that of a task; discard it")
    args, kwargs, embed = body
    return Payload(_args(args), _kwargs(kwargs), embed or {})


def _as_first_protocol(body: dict[Any, Any]) -> Payload:
    rest = {name: value for name, value in body.items() if name not in ("args", "kwargs")}
    return Payload(
        args=_args(body.get("args", ())),
        kwargs=_kwargs(body.get("kwargs", {})),
        rest=rest,
        is_first_protocol=True,
    )


def _args(value: Any) -> list[Any]:
    if value is not None and not isinstance(value, (list, tuple)):
        raise PayloadError(
            f"its arguments are of type {type(value).__name__}, not a list; discard it"
        )
    return value if isinstance(value, list) else list(value or ())


def _kwargs(value: Any) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise PayloadError(
            f"its keyword arguments are of type {type(value).__name__}, not a table; discard it"
        )
    return value or {}


def parameters_of(app: Any, name: str) -> Parameters:
    """The positional parameters of a task of ``app``; None if the app does not have it."""
    task = app.tasks.get(name)
    if task is None:
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        found = signature_for_messages(task).parameters.values()
    except Exception:  # noqa: BLE001 - a callable may say what it takes in code of its own
        return None
    return [one.name for one in found if one.kind in positional]
