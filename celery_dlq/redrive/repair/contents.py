"""The changeable contents of a message: its arguments and headers, as a table of ``args``, ``kwargs`` and
``headers``."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from celery.utils.saferepr import saferepr

from celery_dlq.errors import RepairError
from celery_dlq.model.headers import OWN_HEADERS
from celery_dlq.model.letter import DeadLetter
from celery_dlq.redrive.payload import read_payload, write_payload
from celery_dlq.redrive.repair.change import is_same
from celery_dlq.unpack import READ_LIMIT

#: Headers that cannot be changed, and the reason, or the option that changes them.
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


def contents_of(
    letter: DeadLetter, accepted: frozenset[str], *, at_most: int = READ_LIMIT
) -> Contents:
    """The contents of the message of ``letter``, which may be changed without changing the letter.

    :param at_most: the most bytes of its unpacked body.
    :raises PayloadError: its body cannot be read.
    """
    payload = read_payload(letter.envelope, accepted, at_most=at_most)
    return {
        "args": payload.args,
        "kwargs": payload.kwargs,
        "headers": copy.deepcopy(dict(letter.envelope.headers)),
    }


def with_contents(letter: DeadLetter, contents: Contents, accepted: frozenset[str]) -> DeadLetter:
    """``letter`` with other ``contents`` of its message, in the same serialization. The rest of its body
    (callbacks, chain, chord) stays.

    :raises RepairError: they have the wrong types, or change a fixed header.
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
    """Why the headers ``after`` are refused: a fixed one was changed. None if no fixed header was changed."""
    for name in dict.fromkeys([*before, *after]):
        if name in before and name in after and is_same(before[name], after[name]):
            continue
        if why := why_not_set(name):
            return why
    return None


def why_not_set(header: object) -> str | None:
    """Why ``header`` cannot be changed; None if it can."""
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
    # The sender chose which part of the arguments is shown, to hide the rest.
    return "(changed)"
