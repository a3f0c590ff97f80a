"""Diffs of messages for people: secrets are hidden, long values are cut."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator, Mapping
from typing import Any

from billiard.exceptions import SoftTimeLimitExceeded

from celery_dlq.redact import REDACTED, Redactor, clip

#: The most lines of a diff, and the most characters of a line.
LINES, LINE = 100, 500

#: Celery's copies of the arguments, in which secrets are not hidden.
_COPIES = ("argsrepr", "kwargsrepr")

_ABSENT = object()


def describe(before: Mapping[str, Any], after: Mapping[str, Any], redactor: Redactor) -> str:
    """The lines of a diff from ``before`` to ``after``, which are tables of the parts of a message by name.
    Empty if they are the same."""
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
            if path != "headers" or key not in _COPIES:
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


def _within(path: str, key: str) -> str:
    # A key with line breaks could make up lines of the diff.
    name = key if key.isprintable() else json.dumps(key)
    return f"{path}.{name}" if path else name


def _at(items: list[Any], place: int) -> Any:
    return items[place] if place < len(items) else _ABSENT


def _line(sign: str, path: str, value: Any, redactor: Redactor, hidden: bool) -> list[str]:
    if value is _ABSENT:
        return []
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
