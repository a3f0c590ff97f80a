"""The parts of a screen: tables, named values and blocks of text. In a pipe, they are lines without boxes and
colours."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from celery_dlq.view import times
from celery_dlq.view.text import last_part, visible, visible_lines


@dataclass(frozen=True)
class Short:
    """A value that is shortened on a terminal."""

    shown: str
    whole: str


#: The value of a cell or a fact. None and '' are shown as nothing.
Value = str | int | datetime | Short | None


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: str
    right: bool = False
    #: Never cut by a terminal.
    rigid: bool = False
    #: Wrapped onto more lines by a terminal, instead of being cut.
    fold: bool = False
    #: Narrower terminals omit the column.
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

    def __bool__(self) -> bool:
        """Whether it has rows."""
        return bool(self.rows)


def table_of(
    fields: Sequence[Field], items: Sequence[Any], title: str = "", most: int | None = None
) -> Table:
    """A table with a row for each of ``items``.

    :param most: the most rows; None for all. The title says how many are left out.
    """
    rows = [[read(item) for _, read in fields] for item in items[:most]]
    is_cut = most is not None and len(items) > most
    more = f" The first {most:,} of {len(items):,}." if is_cut else ""
    return Table([column for column, _ in fields], rows, title + more)


@dataclass(frozen=True)
class Facts:
    """Named values; empty ones are omitted."""

    title: str
    pairs: Sequence[tuple[str, Value]]

    @property
    def given(self) -> list[tuple[str, Value]]:
        """The pairs that are shown."""
        return [(name, value) for name, value in self.pairs if value not in (None, "")]

    def __bool__(self) -> bool:
        """Whether a pair is shown."""
        return bool(self.given)


def facts_of(title: str, *pairs: tuple[str, Value]) -> Facts:
    """Named values under a title."""
    return Facts(title, pairs)


@dataclass(frozen=True)
class Block:
    """A text of several lines, such as a traceback."""

    title: str
    text: str

    def __bool__(self) -> bool:
        """Whether it has a text."""
        return bool(self.text)


#: A part of a screen; a string is a sentence. A part that is false has no content, and is not shown.
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


#: The blanks between two columns.
_GAP = "  "

#: A cell that is wider moves the rest of its own line to the right, and no other line.
_PADDED = 80

#: The cells of a table by rows, or of one row.
Rows = Sequence[Sequence[str]]


def plain_part(part: Part) -> list[str]:
    """The lines of a part of a screen. Nothing is cut or wrapped, so that ``grep`` finds it."""
    if isinstance(part, str):
        return [visible(part)]
    title = [visible(part.title)] if part.title else []
    if isinstance(part, Block):
        return title + ["  " + line for line in visible_lines(part.text)]
    if isinstance(part, Facts):
        pairs = [(name, visible(as_text(value))) for name, value in part.given]
        return title + ["  " + line for line in aligned(pairs)]
    rows = [[column.title for column in part.columns]]
    rows += [[visible(_cell(value)) for value in row] for row in part.rows]
    return title + aligned(rows, {place for place, one in enumerate(part.columns) if one.right})


def aligned(rows: Rows, right: Collection[int] = ()) -> list[str]:
    """Rows as lines, in which each column is as wide as its widest cell, but not wider than ``_PADDED``.

    :param right: the places of columns whose cells are on the right.
    """
    from rich.cells import cell_len

    lines = []
    widths = [min(_PADDED, max(map(cell_len, column))) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = []
        for place, (text, width) in enumerate(zip(row, widths, strict=True)):
            blank = " " * (width - cell_len(text))
            cells.append(blank + text if place in right else text + blank)
        lines.append(_GAP.join(cells).rstrip())
    return lines


def _cell(value: Value) -> str:
    # The short form of ISO 8601 leaves room for other columns.
    if isinstance(value, datetime):
        return f"{value.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    return as_text(value)
