"""Text for people: hostile characters are escaped, long texts are shortened."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from os.path import commonprefix
from typing import Any

# Controls, escapes, direction overrides, invisible characters, line separators, lone surrogates: they
# could move the cursor, colour the screen, or disguise a text.
_HOSTILE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BARS = "▁▂▃▄▅▆▇█"

#: The least number of characters of an id in a table.
SHORT_ID = 8

#: A name and its value. Screens leave out a value of None or ''.
Fact = tuple[str, str | int | datetime | None]


def given(facts: Iterable[Fact]) -> list[Fact]:
    """The facts that have a value."""
    return [(name, value) for name, value in facts if value not in (None, "")]


def visible(text: str) -> str:
    """``text`` on one line, with every character escaped that would control a terminal."""
    return _HOSTILE.sub(_written_out, text)


def visible_lines(text: str) -> list[str]:
    """The lines of ``text``, each through :func:`visible`, with tabs as spaces."""
    return [visible(line.expandtabs(4)) for line in text.replace("\r\n", "\n").split("\n")]


def _written_out(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    if char in _NAMED:
        return _NAMED[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def json_text(value: Any) -> str:
    """``value`` as JSON with all characters; empty for None."""
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def first_line(text: str) -> str:
    """The first line of ``text`` that is not empty."""
    return text.strip().partition("\n")[0].rstrip()


def last_part(dotted: str) -> str:
    """The last part of a dotted name."""
    return dotted.rpartition(".")[2] or dotted


def counted(count: int, one: str, many: str = "") -> str:
    """``count`` with its noun: ``1 dead letter``, ``2 dead letters``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def some(names: Sequence[str], most: int = 10) -> str:
    """The first ``most`` of ``names``, and the number of the others."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def percent(share: float) -> str:
    """``share``, from 0 to 1, as ``99%``. It is rounded down: 100% means all."""
    return "under 1%" if 0 < share < 0.01 else f"{math.floor(100 * share + 1e-9)}%"


def byte_size(count: int) -> str:
    """``count`` bytes in a readable unit: ``1.5 MB``."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} GB"


def short_ids(ids: Sequence[str]) -> list[str]:
    """Prefixes of ``ids`` that are unique among them, at least :data:`SHORT_ID` characters long."""
    needed = dict.fromkeys(ids, SHORT_ID)
    for neighbours in pairwise(sorted(needed)):
        unique = len(commonprefix(neighbours)) + 1  # noqa: RUF071 - a prefix of characters, not of paths
        for task_id in neighbours:
            needed[task_id] = max(needed[task_id], unique)
    return [task_id[: needed[task_id]] for task_id in ids]


def sparkline(counts: Sequence[int]) -> str:
    """``counts`` as a row of bars; the highest bar is the highest count, the lowest is zero."""
    top = max(counts, default=0)
    return "".join(_BARS[_step(count, top, len(_BARS) - 1)] for count in counts)


def bar(count: int, top: int, width: int) -> str:
    """``count`` of ``top`` as a bar of at most ``width`` characters."""
    return "█" * _step(count, top, width)


def _step(count: int, top: int, steps: int) -> int:
    # Round up, so that 1 is never drawn as 0.
    return -(-count * steps // top) if top else 0
