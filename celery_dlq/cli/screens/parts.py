"""The parts of a screen: tables, named values, and blocks of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from celery_dlq.view import times
from celery_dlq.view.text import last_part


@dataclass(frozen=True)
class Short:
    """A value that is shortened on a terminal, and in a pipe if there is no room for all of it."""

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
