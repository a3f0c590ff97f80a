"""The frame of an answer: texts from messages, exceptions, workers and people are in fields named
``from_outside``, and nowhere else. As texts in JSON they cannot end it.

A value is outside of the frame only if it is a number, a time, or a word of this package, whatever its field
is named. So a text from outside has no way out of the frame.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from celery_dlq.base.redact import clip
from celery_dlq.errors import CeleryDLQError
from celery_dlq.model.group import GroupStatus, Mark
from celery_dlq.model.operation import OperationState
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.view.brief import JSON_NOTICE
from celery_dlq.view.text import visible, visible_lines

#: The most characters of an answer.
LONGEST = 60_000

#: The most characters of each text in it, and the most items of each list and table: the first pair with
#: which the answer is short enough.
_SIZES = ((4_000, 200), (1_000, 50), (200, 50), (80, 50))

_WORDS = frozenset(
    word.value
    for kind in (State, Reason, Verdict, GroupStatus, Mark, OperationState)
    for word in kind
)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.:+Z-]{0,16}", re.ASCII)

FRAME = "from_outside"


def framed(answer: Any, *, remarks: list[str], ours: Mapping[str, str]) -> str:
    """``answer``, a record or a list of records, as JSON.

    :param remarks: sentences about it, which may repeat names from outside.
    :param ours: fields that this package has written.
    :raises CeleryDLQError: it is too large, even with all its texts cut.
    """
    rows = answer if isinstance(answer, list) else [answer]
    for text, items in _SIZES:
        whole: dict[str, Any] = {"notice": JSON_NOTICE, **ours}
        if remarks:
            whole[FRAME] = {"remarks": _cut(remarks, text, items)}
        whole["answer"] = [_split(row, text, items) for row in rows]
        written = json.dumps(whole, ensure_ascii=False)
        if len(written) <= LONGEST:
            return written
    raise CeleryDLQError(
        f"The answer has more than {LONGEST:,} characters; ask for fewer with a limit or filters."
    )


def framed_error(said: str) -> str:
    """An error as JSON. It may repeat names from outside."""
    return json.dumps({"notice": JSON_NOTICE, FRAME: {"error": said}}, ensure_ascii=False)


def _split(row: Any, text: int, items: int) -> dict[str, Any]:
    """A record whose own values stay in place. All others are in the frame."""
    if not isinstance(row, Mapping):
        row = {"value": row}
    own = {name: value for name, value in row.items() if value is not None and _is_own(value)}
    rest = {name: value for name, value in row.items() if not _is_own(value)}
    return {**own, FRAME: _cut(rest, text, items)} if rest else own


def _is_own(value: Any) -> bool:
    if isinstance(value, str):
        return value in _WORDS or _TIME.fullmatch(value) is not None
    if isinstance(value, Mapping):
        return all(name in _WORDS and _is_own(item) for name, item in value.items())
    if isinstance(value, list):
        return all(map(_is_own, value))
    return value is None or isinstance(value, (int, float))


def _cut(value: Any, text: int, items: int) -> Any:
    """``value`` with its texts made visible and cut."""
    if isinstance(value, str):
        return clip("\n".join(visible_lines(value)), text)
    if isinstance(value, Mapping):
        shown = [(name, item) for name, item in value.items() if item not in (None, "", [], {})]
        cut = {
            clip(visible(str(name)), text): _cut(item, text, items) for name, item in shown[:items]
        }
        return {**cut, "…": f"{len(shown) - items} more"} if len(shown) > items else cut
    if isinstance(value, list):
        more = [f"… and {len(value) - items} more"] if len(value) > items else []
        return [*(_cut(item, text, items) for item in value[:items]), *more]
    return value
