"""Explains why a message cannot become a request, or would run wrongly. The texts are part of the
fingerprints of stored letters, so they stay as they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from celery.exceptions import InvalidTaskError
from celery.utils.time import timezone as celery_time
from celery.worker.request import Request
from celery.worker.strategy import hybrid_to_proto2, proto1_to_proto2
from kombu.serialization import dumps

_LISTS = (list, tuple)

#: The names that Celery sends in the third part of a body.
_CANVAS = frozenset({"callbacks", "errbacks", "chain", "chord"})
#: Names there that would overwrite the worker's own values. With ``is_eager``, for example, a retry would run
#: inside the task that asks for it, and never be sent.
_WORKERS = frozenset(
    {"is_eager", "called_directly", "delivery_info", "args", "kwargs", "hostname", "properties", "id", "task",
     "retries", "headers", "timelimit", "loglevel", "logfile"}
)  # fmt: skip
_NO_LIMITS = ([None, None], (None, None), None)


def malformation(message: Any) -> str | None:
    """Why a worker cannot take ``message``; None if it can.

    Celery notices such a message only by an error half-way, which would end the worker. Call this only after
    such an error, because it decodes the body.
    """
    headers = message.headers
    try:
        payload = message.payload
    except Exception as error:  # noqa: BLE001 - decoders raise anything
        return f"the body cannot be decoded: {error}"
    if "task" not in headers:
        return _fields_malformation(payload)
    why = _fields_malformation(headers)
    if why is None and not (isinstance(payload, Mapping) and "args" in payload):
        if not isinstance(payload, _LISTS) or len(payload) != 3:
            return f"the body is not (args, kwargs, embed) but {_kind(payload)}"
        why = _contents_malformation(*payload)
    return why


def _fields_malformation(fields: Any) -> str | None:
    """Why ``fields`` cannot run a task. They are a message's headers; in the protocol of Celery 3, its
    body."""
    if not isinstance(fields, Mapping):
        return f"the body is not a table but {_kind(fields)}"
    if not isinstance(fields.get("task"), str):
        return f"the task's name is not text but {_kind(fields.get('task'))}"
    return _options_malformation(fields)


def _contents_malformation(args: object, kwargs: object, embed: object) -> str | None:
    """Why a task cannot be called with the contents of its body."""
    if not isinstance(args, _LISTS):
        return f"args are not a list but {_kind(args)}"
    if not isinstance(kwargs, Mapping):
        return f"kwargs are not a table but {_kind(kwargs)}"
    if embed is not None and not isinstance(embed, Mapping):
        return f"the third part of the body is not a table but {_kind(embed)}"
    return _embed_malformation(embed or {})


def _embed_malformation(embed: Mapping[Any, Any]) -> str | None:
    if not all(isinstance(name, str) for name in embed):
        return "the third part of the body has names that are not text"
    overwritten = _WORKERS.intersection(embed)
    if not overwritten:
        return None
    return f"the third part of the body overwrites {', '.join(sorted(overwritten))}"


def _options_malformation(fields: Mapping[str, Any]) -> str | None:
    """Why the id or a number in a message's headers is not valid."""
    task_id, retries, timelimit = (fields.get(name) for name in ("id", "retries", "timelimit"))
    shadow = fields.get("shadow")
    if task_id in (None, ""):
        return "it has no id"
    if not isinstance(task_id, (str, int)):
        return f"the id is not text but {_kind(task_id)}"
    if retries is not None and not isinstance(retries, int):
        return f"retries are not a number but {_kind(retries)}"
    if shadow and not isinstance(shadow, str):
        return f"the shadow is not text but {_kind(shadow)}"
    return _timelimit_malformation(timelimit) if timelimit else None


def _timelimit_malformation(timelimit: Any) -> str | None:
    if not isinstance(timelimit, (list, tuple)) or len(timelimit) != 2:
        return f"timelimit is not a pair but {_kind(timelimit)}"
    if all(limit is None or _is_finite(limit) for limit in timelimit):
        return None
    return "timelimit is not a pair of numbers"


def _is_finite(limit: object) -> bool:
    # The timers of the event loop are sorted by time, and a NaN cannot be sorted.
    try:
        return isinstance(limit, (int, float)) and math.isfinite(limit)
    except OverflowError:
        return False


def refusal(message: Any, app: Any) -> str | None:
    """Why Celery cannot make a request of ``message``; None if it can, or the task is unknown.

    Call this after an error half-way. It makes the request again; if that raises, too, the message is at
    fault.
    """
    fields = message.headers if "task" in message.headers else message.payload
    task = app.tasks.get(fields["task"])
    if task is None:
        return None
    try:
        _look_at(_request_of(message, app, task), datetime.now(timezone.utc))
    except Exception as error:  # noqa: BLE001 - all of them are the answer
        return f"no request can be made of it: {type(error).__name__}: {error}"
    return None


def _request_of(message: Any, app: Any, task: Any) -> Any:
    """A request as Celery's strategy makes it, for each message protocol."""
    if "task" in message.headers and "args" not in message.payload:
        return Request(message, app=app, task=task)
    convert = hybrid_to_proto2 if "task" in message.headers else proto1_to_proto2
    body, headers, decoded, utc = convert(message, dict(message.payload))
    return Request(
        message, app=app, task=task, body=body, headers=headers, decoded=decoded, utc=utc
    )


def _look_at(request: Any, now: datetime) -> None:
    """Use ``request`` as Celery's strategy does before it gives the request to the pool.

    :raises Exception: the error that Celery's strategy would raise.
    """
    hash(request.id)
    _ = request.stamps
    for moment in filter(None, (request.eta, request.expires)):
        celery_time.to_system(moment)
        _ = moment < (now if moment.tzinfo else now.replace(tzinfo=None))
    event = {
        "uuid": request.id, "name": request.name, "args": request.argsrepr, "kwargs": request.kwargsrepr,
        "root_id": request.root_id, "parent_id": request.parent_id,
        "retries": request.request_dict.get("retries", 0),
    }  # fmt: skip
    dumps(event, "json")


def check_request(request: Any) -> None:
    """Refuse a request that Celery would accept and then drop, or treat as a success.

    :raises InvalidTaskError: the request is refused. Celery answers this error by rejecting the message.
    """
    why = _contents_malformation(*request._payload) or _options_malformation(request.request_dict)
    if why is None and request.eta is not None and request.utc:
        try:
            # As Celery's strategy does, which rejects the message without an error.
            celery_time.to_system(request.eta)
        except (OverflowError, ValueError) as error:
            why = f"the eta {request.eta} is out of range: {error}"
    if why is not None:
        raise InvalidTaskError(why)


def is_plain(request: Any) -> bool:
    """Whether ``request`` is an ordinary one, so that :func:`check_request` has nothing to refuse. This check
    is a microsecond faster."""
    fields = request._request_dict
    return (
        type(request._kwargs) is dict
        and type(request._args) in _LISTS
        and type(request._Request__payload[2]) is dict  # _payload would take a lock, and be kept
        and _CANVAS.issuperset(request._Request__payload[2])
        and type(request.id) is type(request.name) is str
        and request.id != ""
        and type(fields.get("retries")) is int
        and fields.get("timelimit") in _NO_LIMITS
        and request._eta is None
    )


def _kind(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    return "nothing" if value is None else f"{type(value).__name__}"
