"""What is in a message's body: read under the app's accepted content types, and written again by the
serializer that it came with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from kombu import compression, serialization

from celery_dlq.errors import PayloadError
from celery_dlq.headers import COMPRESSED_HEADER
from celery_dlq.letter import NO_TASK, DeadLetter, Envelope
from celery_dlq.redrive.fast import read_json

_JSON = "application/json"


class Payload(NamedTuple):
    """The body of a task message, decoded."""

    args: list[Any]
    kwargs: dict[str, Any]
    #: What comes beside the arguments: callbacks, errbacks, chain and chord; in Celery's first message
    #: protocol, which has no headers, all the rest of the message.
    rest: dict[str, Any]
    is_first_protocol: bool = False


def accepted_by(app: Any) -> frozenset[str]:
    """The content types that the workers of ``app`` read."""
    return frozenset(serialization.prepare_accept_content(app.conf.accept_content or ["json"]))


def task_of(letter: DeadLetter) -> str:
    """The task that the message of ``letter`` would run: not the one that failed last, where a redrive
    ran another in its place."""
    named = letter.envelope.headers.get("task")
    return named if isinstance(named, str) and letter.task != NO_TASK else letter.task


def read_payload(
    envelope: Envelope, accepted: frozenset[str], *, in_outline: bool = False
) -> Payload:
    """The decoded body of ``envelope``.

    :param in_outline: values inside the arguments do not matter, and may be left in their JSON form.
    :raises PayloadError: it cannot be decoded, its content type is not accepted, or it is no task's.
    """
    is_plain = in_outline and _is_plain_json(envelope) and _JSON in accepted
    try:
        # Celery looks at each object in JSON, which takes most of the time.
        body = read_json(envelope.body) if is_plain else _decoded(envelope, accepted)
    except Exception as error:
        raise PayloadError(
            f"its body cannot be decoded: {_first_line(error)}; accept its content type, or discard it"
        ) from error
    return _as_first_protocol(body) if isinstance(body, dict) else _as_second_protocol(body)


def write_payload(payload: Payload, envelope: Envelope) -> Envelope:
    """``envelope`` with ``payload`` as its body, in the serialization that it has.

    :raises PayloadError: the serializer does not take it.
    """
    name = serialization.registry.type_to_name.get(envelope.content_type)
    try:
        content_type, encoding, body = serialization.dumps(_body_of(payload), name or "unknown")
    except Exception as error:
        raise PayloadError(
            f"{name or envelope.content_type} cannot say it: {_first_line(error)}"
        ) from error
    headers = {
        header: value
        for header, value in envelope.headers.items()
        # It is written without any compression.
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


def _decoded(envelope: Envelope, accepted: frozenset[str]) -> Any:
    return serialization.loads(
        _plain_body(envelope), envelope.content_type, envelope.content_encoding, accepted
    )


def _plain_body(envelope: Envelope) -> bytes:
    if not _is_compressed(envelope):
        return envelope.body
    return bytes(compression.decompress(envelope.body, envelope.headers["compression"]))


def _is_plain_json(envelope: Envelope) -> bool:
    return envelope.content_type == _JSON and not _is_compressed(envelope)


def _is_compressed(envelope: Envelope) -> bool:
    return COMPRESSED_HEADER in envelope.headers and "compression" in envelope.headers


def _as_second_protocol(body: Any) -> Payload:
    if not isinstance(body, (list, tuple)) or len(body) != 3:
        raise PayloadError("its body is not that of a task; discard it")
    args, kwargs, embed = body
    if embed is not None and not isinstance(embed, dict):
        raise PayloadError("its body is not that of a task; discard it")
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
        raise PayloadError(f"its arguments are of type {type(value).__name__}, no list; discard it")
    return value if isinstance(value, list) else list(value or ())


def _kwargs(value: Any) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise PayloadError(
            f"its keyword arguments are of type {type(value).__name__}, no table; discard it"
        )
    return value or {}


def _body_of(payload: Payload) -> Any:
    if payload.is_first_protocol:
        return {**payload.rest, "args": payload.args, "kwargs": payload.kwargs}
    return (payload.args, payload.kwargs, payload.rest)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]
