"""What is wrong with a message that Celery cannot turn into a request, or would run wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery.exceptions import InvalidTaskError
from celery.utils.time import timezone

_LISTS = (list, tuple)
_NO_LIMITS = ([None, None], (None, None), None)


def malformation(message: Any) -> str | None:
    """Why ``message`` is no task that a worker can take; None when nothing is wrong with it.

    Celery finds out by an error half-way, which ends the worker. To be asked only then: it decodes.
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
        why = _body_malformation(payload)
    return why


def _fields_malformation(fields: Any) -> str | None:
    """``fields`` are a message's headers; in the protocol of Celery 3, its body."""
    if not isinstance(fields, Mapping):
        return f"the body is no table but {_kind(fields)}"
    if not isinstance(fields.get("task"), str):
        return f"the task's name is no text but {_kind(fields.get('task'))}"
    return _options_malformation(fields)


def _body_malformation(payload: Any) -> str | None:
    if not isinstance(payload, (list, tuple)) or len(payload) != 3:
        return f"the body is not (args, kwargs, embed) but {_kind(payload)}"
    return _contents_malformation(*payload)


def _contents_malformation(args: object, kwargs: object, embed: object) -> str | None:
    """Why a task cannot be called with the contents of its body."""
    if not isinstance(args, (list, tuple)):
        return f"args are no list but {_kind(args)}"
    if not isinstance(kwargs, Mapping):
        return f"kwargs are no table but {_kind(kwargs)}"
    if embed is not None and not isinstance(embed, Mapping):
        return f"the third part of the body is no table but {_kind(embed)}"
    return None


def _options_malformation(fields: Mapping[str, Any]) -> str | None:
    """Why the id or a number in a message's headers is none."""
    task_id, retries, timelimit = (fields.get(name) for name in ("id", "retries", "timelimit"))
    if task_id in (None, ""):
        return "it has no id"
    if not isinstance(task_id, (str, int)):
        return f"the id is no text but {_kind(task_id)}"
    if retries is not None and not isinstance(retries, int):
        return f"retries are no number but {_kind(retries)}"
    return _timelimit_malformation(timelimit) if timelimit else None


def _timelimit_malformation(timelimit: Any) -> str | None:
    if not isinstance(timelimit, (list, tuple)) or len(timelimit) != 2:
        return f"timelimit is no pair but {_kind(timelimit)}"
    if all(limit is None or isinstance(limit, (int, float)) for limit in timelimit):
        return None
    return "timelimit is no pair of numbers"


def check_request(request: Any) -> None:
    """Refuse a request that Celery accepts and then drops, or takes for a success.

    :raises InvalidTaskError: which Celery answers by rejecting the message.
    """
    why = _contents_malformation(*request._payload) or _options_malformation(request.request_dict)
    if why is None and request.eta is not None and request.utc:
        why = _date_malformation(request.eta)
    if why is not None:
        raise InvalidTaskError(why)


def is_plain(request: Any) -> bool:
    """Whether ``request`` is as nearly all are, so that :func:`check_request` has nothing
    to refuse: a look that costs a microsecond less."""
    fields = request._request_dict
    return (
        type(request._kwargs) is dict
        and type(request._args) in _LISTS
        and type(request._Request__payload[2]) is dict  # _payload would take a lock, and be kept
        and type(request.id) is str
        and request.id != ""
        and type(fields.get("retries")) is int
        and fields.get("timelimit") in _NO_LIMITS
        and request._eta is None
    )


def _date_malformation(eta: Any) -> str | None:
    try:
        # As Celery's strategy does, which rejects the message with nobody told.
        timezone.to_system(eta)
    except (OverflowError, ValueError) as error:
        return f"the eta {eta} is out of range: {error}"
    return None


def _kind(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    return "nothing" if value is None else f"{type(value).__name__}"
