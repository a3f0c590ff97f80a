"""The changeable contents of a message: its arguments and headers, as a table of ``args``, ``kwargs`` and
``headers``. Diffs of them are for people: secrets are hidden, and long values are cut."""

from __future__ import annotations

import copy
import json
import pickle
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from billiard.exceptions import SoftTimeLimitExceeded
from celery.utils.saferepr import saferepr

from celery_dlq.base.redact import REDACTED, Redactor, clip
from celery_dlq.base.unpack import READ_LIMIT
from celery_dlq.errors import RepairError
from celery_dlq.model.headers import OWN_HEADERS
from celery_dlq.model.letter import DeadLetter
from celery_dlq.redrive.letter.payload import OpenLetter, read_payload, write_payload

#: Headers that cannot be changed, and the reason, or the option that changes them.
FIXED: Mapping[str, str] = {
    "id": "a letter keeps its task id",
    "task": "--to-task names another task",
    "group": "it keeps its place in the canvas",
    "group_index": "it keeps its place in the canvas",
    "retries": "a redrive begins with the first attempt",
    "eta": "--eta sets it",
    "expires": "a redrive does not expire",
}

#: Celery's copies of the arguments for logs and events, and how long they are. Their secrets are not hidden.
COPIES, _COPY_SIZE = {"argsrepr": "args", "kwargsrepr": "kwargs"}, 1_024

#: The most lines of a diff, and the most characters of a line.
LINES, LINE = 100, 500

_ABSENT = object()

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


def with_contents(opened: OpenLetter, contents: Contents) -> OpenLetter:
    """The letter with other ``contents`` of its message, in the same serialization. The rest of its body
    (callbacks, chain, chord) stays.

    :raises RepairError: they have the wrong types, or change a fixed header.
    """
    after, letter, payload = _in_shape(contents), opened.letter, opened.payload
    before: Contents = {
        "args": payload.args, "kwargs": payload.kwargs, "headers": letter.envelope.headers,
    }  # fmt: skip
    for name in dict.fromkeys([*before["headers"], *after["headers"]]):
        given = [part["headers"].get(name, _ABSENT) for part in (before, after)]
        if not is_same(*given) and (why := why_not_set(name)):
            raise RepairError(why)
    envelope = replace(letter.envelope, headers=_with_new_copies(before, after))
    if all(is_same(before[name], after[name]) for name in ("args", "kwargs")):
        return opened.with_(envelope=envelope)
    changed = payload._replace(args=after["args"], kwargs=after["kwargs"])
    return opened.with_(envelope=write_payload(changed, envelope))


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


def describe(before: Mapping[str, Any], after: Mapping[str, Any], redactor: Redactor) -> str:
    """The lines of a diff from ``before`` to ``after``, which are tables of the parts of a message by name,
    with the name of its task. Empty if they are the same."""
    before, after = (
        {**one, "args": redactor.named(one["task"], one["args"], _Secret)} if "args" in one else one
        for one in (before, after)
    )
    lines = [line for step in _steps(before, after, "", redactor) for line in step]
    if len(lines) > LINES:
        lines[LINES:] = [f"… {len(lines) - LINES} more lines"]
    return "\n".join(lines)


def kind_of(change: str) -> str:
    """The places that a change touches, without values and list indexes: changes of one kind are counted
    together."""
    named = (
        line[2:].split(" = ", 1)[0] for line in change.splitlines() if line[:2] in ("- ", "+ ")
    )
    return ", ".join(dict.fromkeys(re.sub(r"\[\d+\]", "[]", name) for name in named))


def _steps(
    before: Any, after: Any, path: str, redactor: Redactor, *, hidden: bool = False
) -> Iterator[list[str]]:
    if not hidden and isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            secret = redactor.is_sensitive(str(key))
            if path != "headers" or key not in COPIES:
                yield from _steps(
                    before.get(key, _ABSENT), after.get(key, _ABSENT),
                    _within(path, str(key)), redactor, hidden=secret,
                )  # fmt: skip
    elif not hidden and isinstance(before, list) and isinstance(after, list):
        secret = redactor.is_pair(before) or redactor.is_pair(after)
        for place in range(max(len(before), len(after))):
            yield from _steps(
                _at(before, place), _at(after, place), f"{path}[{place}]", redactor,
                hidden=secret and place > 0,
            )  # fmt: skip
    elif not is_same(before, after):
        yield [
            *_line("-", path, before, redactor, hidden),
            *_line("+", path, after, redactor, hidden),
        ]


@dataclass(frozen=True)
class _Secret:
    """A positional argument that its parameter names as a secret."""

    value: Any


def _within(path: str, key: str) -> str:
    # A key with line breaks could make up lines of the diff.
    name = key if key.isprintable() else json.dumps(key)
    return f"{path}.{name}" if path else name


def _at(items: list[Any], place: int) -> Any:
    return items[place] if place < len(items) else _ABSENT


def _line(sign: str, path: str, value: Any, redactor: Redactor, hidden: bool) -> list[str]:
    if value is _ABSENT:
        return []
    hidden = hidden or isinstance(value, _Secret)
    shown = REDACTED if hidden else json.dumps(redactor.display(value), ensure_ascii=False)
    return [clip(f"{sign} {path} = {shown}", LINE)]


def is_same(before: Any, after: Any) -> bool:
    """Whether two values are the same to a reader: of the same type, and equal."""
    if before is _ABSENT or after is _ABSENT or type(before) is not type(after):
        return before is after
    try:
        # NaN, and objects without equality, are the same if they are pickled the same.
        return bool(before == after) or pickle.dumps(before) == pickle.dumps(after)
    except SoftTimeLimitExceeded:
        raise
    except Exception:  # noqa: BLE001 - unpickled objects may compare in any way
        return False
