"""The parts of a screen: tables, named values and blocks of text. In a pipe, they are lines without boxes and
colours."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from typing import Any

from celery_dlq.redact import ELIDED
from celery_dlq.view import times
from celery_dlq.view.text import last_part, visible, visible_lines


@dataclass(frozen=True)
class Short:
    """A value that is shortened on a terminal, and in a pipe if it is too long for its column."""

    shown: str
    whole: str


#: The value of a cell or a fact. None and '' are shown as nothing.
Value = str | int | datetime | Short | None


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: str
    right: bool = False
    #: Never cut.
    rigid: bool = False
    #: Wrapped onto more lines instead of being cut.
    fold: bool = False
    #: Narrower terminals and pipes omit the column.
    from_width: int = 0
    #: Holds ids: a terminal shows of each the beginning that no other row has.
    ids: bool = False


#: A column, and what it shows of an item.
Field = tuple[Column, Callable[[Any], Value]]


@dataclass(frozen=True)
class Table:
    """Columns and rows."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    title: str = ""


def table_of(fields: Sequence[Field], items: Sequence[Any], title: str = "") -> Table:
    """A table with a row for each of ``items``."""
    rows = [[read(item) for _, read in fields] for item in items]
    return Table([column for column, _ in fields], rows, title)


@dataclass(frozen=True)
class Facts:
    """Named values; empty ones are omitted."""

    title: str
    pairs: Sequence[tuple[str, Value]]

    @property
    def given(self) -> list[tuple[str, Value]]:
        """The pairs that are shown."""
        return [(name, value) for name, value in self.pairs if value not in (None, "")]


def facts_of(title: str, *pairs: tuple[str, Value]) -> Facts:
    """Named values under a title."""
    return Facts(title, pairs)


@dataclass(frozen=True)
class Block:
    """A text of several lines, such as a traceback."""

    title: str
    text: str


#: A part of a screen; a string is a sentence.
Part = Table | Facts | Block | str


def last_name(dotted: str) -> Short:
    """A dotted name. A terminal shows only its last part."""
    return Short(last_part(dotted), dotted)


def as_text(value: Value) -> str:
    """``value`` in full."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return times.iso(value)
    return value.whole if isinstance(value, Short) else str(value)


#: A column is not cut below this width as long as other columns can be left out instead.
_LEAST = 10

#: The blanks between two columns.
_GAP = "  "

#: The cells of a table by rows, or of one row.
Rows = Sequence[Sequence[str]]


def plain_part(part: Part, width: int) -> list[str]:
    """The lines of a part of a screen."""
    if isinstance(part, str):
        return [visible(part)]
    title = [visible(part.title)] if part.title else []
    if isinstance(part, Block):
        return title + ["  " + line for line in visible_lines(part.text)]
    if isinstance(part, Facts):
        pairs = [(name, visible(as_text(value))) for name, value in part.given]
        return title + ["  " + line for line in aligned(pairs)]
    whole = [[_cell(value) for value in row] for row in part.rows]
    short = [
        [visible(value.shown) if isinstance(value, Short) else _cell(value) for value in row]
        for row in part.rows
    ]
    return title + plain_table(part.columns, whole, short, width)


def plain_table(columns: Sequence[Column], whole: Rows, short: Rows, width: int) -> list[str]:
    """The lines of a table that is at most as wide as ``width``, if its rigid columns allow that.

    :param whole: the cells, which are used if all have room.
    :param short: the same cells, shortened as on a terminal; they are cut if they still have no room.
    """
    titles = [column.title for column in columns]
    shown = [place for place, column in enumerate(columns) if column.from_width <= width]
    rows = _of_columns([titles, *whole], shown)
    if _total(_widths(rows)) > width:
        shown = _with_room(columns, _widths([titles, *short]), shown, width)
        rows = _of_columns([titles, *short], shown)
    columns = [columns[place] for place in shown]
    widths = _narrowed(columns, _widths(rows), width)
    lines = [line for row in rows for line in _within(columns, row, widths)]
    return aligned(lines, {place for place, column in enumerate(columns) if column.right})


def aligned(rows: Rows, right: Collection[int] = ()) -> list[str]:
    """Rows as lines, in which each column is as wide as its widest cell.

    :param right: the places of columns whose cells are on the right.
    """
    from rich.cells import cell_len

    widths, lines = _widths(rows), []
    for row in rows:
        cells = []
        for place, (text, width) in enumerate(zip(row, widths, strict=True)):
            blank = " " * (width - cell_len(text))
            cells.append(blank + text if place in right else text + blank)
        lines.append(_GAP.join(cells).rstrip())
    return lines


def _cell(value: Value) -> str:
    # Parts of a second would take the room of other columns.
    exact = value.replace(microsecond=0) if isinstance(value, datetime) else value
    return visible(as_text(exact))


def _widths(rows: Rows) -> list[int]:
    from rich.cells import cell_len

    return [max(map(cell_len, column)) for column in zip(*rows, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _of_columns(rows: Rows, places: Sequence[int]) -> list[list[str]]:
    return [[row[place] for place in places] for row in rows]


def _with_room(
    columns: Sequence[Column], widths: Sequence[int], places: Sequence[int], width: int
) -> list[int]:
    """The ``places`` of columns that have room. The columns that narrow terminals omit are left out first."""

    def least(place: int) -> int:
        return widths[place] if columns[place].rigid else min(widths[place], _LEAST)

    kept = list(places)
    spare = [place for place in kept if columns[place].from_width]
    spare.sort(key=lambda place: columns[place].from_width)
    while spare and _total([least(place) for place in kept]) > width:
        kept.remove(spare.pop())
    return kept


def _narrowed(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """``widths``, in which the widest columns that may be cut are narrower, so that all have room."""
    found = list(widths)
    soft = [place for place, column in enumerate(columns) if not column.rigid]
    excess = _total(found) - width
    while excess > 0 and any(found[place] > 1 for place in soft):
        widest = max(soft, key=lambda place: found[place])
        others = max((found[place] for place in soft if place != widest), default=1)
        less = min(excess, max(1, found[widest] - others))
        found[widest] -= less
        excess -= less
    return found


def _within(
    columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]
) -> Iterator[list[str]]:
    """The lines of one row: cells without room are cut or, in a column that folds, wrapped."""
    cells = [
        _wrapped(text, width) if column.fold else [_cut(text, width)]
        for column, text, width in zip(columns, row, widths, strict=True)
    ]
    return map(list, zip_longest(*cells, fillvalue=""))


def _wrapped(text: str, width: int) -> list[str]:
    from rich.cells import cell_len

    # Some characters are two cells wide.
    characters = max(1, width if cell_len(text) == len(text) else width // 2)
    # A command is copied, so its options stay whole.
    return textwrap.wrap(text, characters, break_on_hyphens=False) or [""]


def _cut(text: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + ELIDED
