"""Text for people: hostile characters made visible, long things made short."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from os.path import commonprefix

# Controls, escapes, direction overrides, invisible characters, line separators, lone surrogates:
# what could move the cursor, colour the screen, or make a text read as another.
_HOSTILE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BARS = "▁▂▃▄▅▆▇█"

#: Characters of an id that a table on a terminal shows at least.
SHORT_ID = 8


def visible(text: str) -> str:
    """``text`` on one line, with every character that a terminal would act on written out."""
    return _HOSTILE.sub(_written_out, text)


def visible_lines(text: str) -> list[str]:
    """The lines of ``text``, each as :func:`visible` makes it, tabs as blanks."""
    return [visible(line.expandtabs(4)) for line in text.replace("\r\n", "\n").split("\n")]


def _written_out(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    if char in _NAMED:
        return _NAMED[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def first_line(text: str) -> str:
    """The first line of ``text`` that says something."""
    return text.strip().partition("\n")[0].rstrip()


def last_part(dotted: str) -> str:
    """The last part of a dotted name."""
    return dotted.rpartition(".")[2] or dotted


def counted(count: int, one: str, many: str = "") -> str:
    """``count`` with its noun: ``1 dead letter``, ``2 dead letters``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def byte_size(count: int) -> str:
    """``count`` bytes in the unit that people would name: ``1.5 MB``."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} GB"


def short_ids(ids: Sequence[str]) -> list[str]:
    """Beginnings of ``ids`` that are unique among them, :data:`SHORT_ID` characters at least."""
    needed = dict.fromkeys(ids, SHORT_ID)
    for neighbours in pairwise(sorted(needed)):
        unique = len(commonprefix(neighbours)) + 1  # noqa: RUF071 - of characters, not of paths
        for task_id in neighbours:
            needed[task_id] = max(needed[task_id], unique)
    return [task_id[: needed[task_id]] for task_id in ids]


def sparkline(counts: Sequence[int]) -> str:
    """``counts`` as a row of bars; the highest bar is the highest count, the lowest is none."""
    top = max(counts, default=0)
    return "".join(_BARS[_step(count, top, len(_BARS) - 1)] for count in counts)


def bar(count: int, top: int, width: int) -> str:
    """``count`` of ``top`` as a bar of at most ``width`` characters."""
    return "█" * _step(count, top, width)


def _step(count: int, top: int, steps: int) -> int:
    # Rounded up: one is never drawn as none.
    return -(-count * steps // top) if top else 0
