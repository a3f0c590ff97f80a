"""What may be changed in a message: its arguments and headers, as a table of ``args``, ``kwargs`` and
``headers``."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from celery.utils.saferepr import saferepr

from celery_dlq.errors import RepairError
from celery_dlq.headers import OWN_HEADERS
from celery_dlq.letter import DeadLetter
from celery_dlq.redrive.change import is_same
from celery_dlq.redrive.payload import read_payload, write_payload

#: Headers that stay as they are, and why, or what changes them.
FIXED: Mapping[str, str] = {
    "id": "a letter keeps its task id",
    "task": "--to-task names another task",
    "group": "it keeps its place in the canvas",
    "group_index": "it keeps its place in the canvas",
    "retries": "a redrive begins with the first attempt",
    "eta": "--eta and --countdown set it",
    "expires": "a redrive does not expire",
}

#: Celery's copies of the arguments for logs and events, and how long they are.
COPIES, _COPY_SIZE = {"argsrepr": "args", "kwargsrepr": "kwargs"}, 1_024

Contents = dict[str, Any]


def contents_of(letter: DeadLetter, accepted: frozenset[str]) -> Contents:
    """The contents of the message of ``letter``, which may be changed without changing the letter.

    :raises PayloadError: its body cannot be read.
    """
    payload = read_payload(letter.envelope, accepted)
    return {
        "args": payload.args,
        "kwargs": payload.kwargs,
        "headers": copy.deepcopy(dict(letter.envelope.headers)),
    }


def with_contents(letter: DeadLetter, contents: Contents, accepted: frozenset[str]) -> DeadLetter:
    """``letter`` with other ``contents`` of its message, in the same serialization. All else in its body
    (callbacks, chain, chord) stays.

    :raises RepairError: they cannot be a message's, or change what has to stay.
    """
    contents = _in_shape(contents)
    before = contents_of(letter, accepted)
    why = why_fixed(before["headers"], contents["headers"])
    if why:
        raise RepairError(why)
    envelope = replace(letter.envelope, headers=_with_new_copies(before, contents))
    if not all(is_same(before[name], contents[name]) for name in ("args", "kwargs")):
        payload = read_payload(letter.envelope, accepted)
        changed = payload._replace(args=contents["args"], kwargs=contents["kwargs"])
        envelope = write_payload(changed, envelope)
    return letter.with_(envelope=envelope)


def why_fixed(before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """The reason when a header is changed that has to stay."""
    for name in dict.fromkeys([*before, *after]):
        if name in before and name in after and is_same(before[name], after[name]):
            continue
        if why := why_not_set(name):
            return why
    return None


def why_not_set(header: object) -> str | None:
    """The reason when ``header`` has to stay as it is."""
    name = str(header)
    if name == "id":
        return f"it changes the task id (headers.id); {FIXED[name]}"
    if name in FIXED:
        return f"it changes headers.{name}; {FIXED[name]}"
    if name.startswith(OWN_HEADERS):
        return f"it changes headers.{name}; headers that begin with {OWN_HEADERS} are celery_dlq's"
    return None


def _in_shape(contents: Contents) -> Contents:
    args = contents["args"]
    if not isinstance(args, (list, tuple)):
        raise RepairError(f"args are of type {type(args).__name__}; they must be a list")
    for name in ("kwargs", "headers"):
        table = contents[name]
        if not isinstance(table, Mapping) or not all(isinstance(key, str) for key in table):
            raise RepairError(f"{name} must be a table whose keys are text")
    return {
        "args": list(args),
        "kwargs": dict(contents["kwargs"]),
        "headers": dict(contents["headers"]),
    }


def _with_new_copies(before: Contents, after: Contents) -> dict[str, Any]:
    headers = dict(after["headers"])
    for header, name in COPIES.items():
        stays = header not in headers or not is_same(headers[header], before["headers"].get(header))
        if not stays and not is_same(before[name], after[name]):
            headers[header] = _copy_like(headers[header], before[name], after[name])
    return headers


def _copy_like(old: object, before: Any, after: Any) -> str:
    for form in (tuple, list) if isinstance(before, list) else (dict,):
        if saferepr(form(before), _COPY_SIZE) == old:
            return str(saferepr(form(after), _COPY_SIZE))
    # Its sender has chosen what is shown of them, so as to hide the rest.
    return "(changed)"
