"""Parts of a screen, and how they are put out: drawn on a terminal, plain in a pipe, or as data."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any

from celery_dlq.codec import dump_json
from celery_dlq.view import times
from celery_dlq.view.text import visible, visible_lines

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod, RenderableType
    from rich.text import Text

#: From so many columns on, a terminal shows times whole and not only as ages.
WIDE = 120

_STYLES = {
    "transient": "yellow", "terminal": "red", "exhausted": "red", "timeout": "red",
    "poison": "red", "rejected": "red", "unstored": "red", "cancelled": "red", "unknown_task": "red",
    "malformed": "red", "ingested": "red", "dead": "red", "claimed": "yellow", "redriven": "yellow",
    "waiting": "yellow", "newer": "red", "torn": "red", "refused": "red",
    "running": "yellow", "paused": "yellow", "aborted": "red", "failed": "red", "unknown": "yellow",
    "done": "green", "succeeded": "green", "skipped": "dim",
    "new": "yellow", "regressed": "red", "ignored": "dim",
    "resolved": "green", "discarded": "dim", "ok": "green", "warning": "yellow", "error": "red",
}  # fmt: skip


@dataclass(frozen=True)
class Short:
    """A value that is shortened on a terminal and whole everywhere else."""

    shown: str
    whole: str


#: What a cell or a fact may hold. A ``None`` and an empty text are shown as nothing.
Value = str | int | datetime | Short | None


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: str
    right: bool = False
    #: Never cut on a terminal.
    rigid: bool = False
    #: Continued on further lines instead of being cut.
    fold: bool = False
    #: Narrower terminals leave the column out.
    from_width: int = 0


@dataclass(frozen=True)
class Table:
    """Rows under columns."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    title: str = ""


@dataclass(frozen=True)
class Facts:
    """Named values; those that are empty are left out."""

    title: str
    pairs: Sequence[tuple[str, Value]]

    @property
    def given(self) -> list[tuple[str, Value]]:
        return [(name, value) for name, value in self.pairs if value not in (None, "")]


@dataclass(frozen=True)
class Block:
    """A text of several lines, such as a traceback."""

    title: str
    text: str


#: A part of a screen; a string is a sentence of our own.
Part = Table | Facts | Block | str

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Screen:
    """Where output goes. All of it passes through Celery's ``echo``, which obeys ``--no-color``."""

    cli: Any
    #: Whether boxes and colours may be drawn.
    drawn: bool
    width: int
    now: datetime = field(default_factory=lambda: times.utc_now())

    @classmethod
    def of(cls, cli: Any) -> Screen:
        """The screen that stdout is."""
        width = shutil.get_terminal_size().columns
        return cls(cli, drawn=is_terminal(sys.stdout) and _speaks_unicode(), width=width)

    def show(self, *parts: Part) -> None:
        """Put out ``parts``, an empty line between them."""
        if self.drawn:
            self._write(self.draw(*parts))
        else:
            self._write("\n\n".join("\n".join(_plain(part)) for part in parts))

    def emit(self, form: str, records: Sequence[Record] | Record, *parts: Part) -> None:
        """Put out ``records`` as the data format ``form``, or ``parts`` when it is ``table``."""
        if form == "table":
            self.show(*parts)
        elif form == "json":
            # Through dump_json, which knows what to do with NaN and foreign objects.
            self._write(json.dumps(json.loads(dump_json(records)), indent=2))
        else:
            rows = [records] if isinstance(records, Mapping) else records
            lines = map(dump_json, rows) if form == "jsonl" else _csv_lines(rows)
            for line in lines:
                self._write(line)

    def _write(self, text: str) -> None:
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        self.cli.echo(text.encode(encoding, "backslashreplace").decode(encoding))

    def draw(self, *parts: Part) -> str:
        """``parts`` as a terminal shows them, an empty line between them."""
        from rich.console import Console

        paper = io.StringIO()
        console = Console(
            file=paper, force_terminal=True, width=self.width, no_color=self.cli.no_color,
            highlight=False, markup=False, emoji=False,
        )  # fmt: skip
        for position, part in enumerate(parts):
            if position:
                console.print()
            self._draw_part(console, part)
        return "\n".join(line.rstrip() for line in paper.getvalue().splitlines())

    def _draw_part(self, console: Console, part: Part) -> None:
        from rich.padding import Padding
        from rich.text import Text

        if isinstance(part, str):
            console.print(Text(visible(part)))
            return
        if part.title:
            console.print(Text(visible(part.title), style="bold"))
        if isinstance(part, Block):
            text = Text("\n".join(visible_lines(part.text)), overflow="fold")
            console.print(Padding(text, (0, 0, 0, 2)))
        elif isinstance(part, Facts):
            console.print(Padding(self._facts_grid(part), (0, 0, 0, 2)))
        else:
            console.print(self._table_grid(part))

    def _facts_grid(self, facts: Facts) -> RenderableType:
        from rich.table import Table as Grid
        from rich.text import Text

        grid = Grid.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, style="dim")
        grid.add_column(overflow="fold")
        for name, value in facts.given:
            grid.add_row(Text(name), self._drawn_value(value, whole=True))
        return grid

    def _table_grid(self, table: Table) -> RenderableType:
        from rich import box
        from rich.table import Table as Grid

        shown = [place for place, one in enumerate(table.columns) if one.from_width <= self.width]
        rows = [[self._drawn_value(row[place]) for place in shown] for row in table.rows]
        grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
        for position, place in enumerate(shown):
            column = table.columns[place]
            side: JustifyMethod = "right" if column.right else "left"
            # Grids take the room they lack from columns that may wrap; the cells are cut instead.
            grid.add_column(column.title, justify=side, no_wrap=column.rigid)
            if not column.fold:
                for row in rows:
                    row[position].no_wrap, row[position].overflow = True, "ellipsis"
        for row in rows:
            grid.add_row(*row)
        return grid

    def _drawn_value(self, value: Value, *, whole: bool = False) -> Text:
        from rich.text import Text

        if isinstance(value, datetime):
            ago = times.age(value, self.now)
            full = whole or self.width >= WIDE
            return Text(f"{times.local(value)} ({ago})" if full else ago)
        if isinstance(value, Short) and not whole:
            return Text(visible(value.shown))
        text = visible(_as_text(value))
        return Text(text, style=_STYLES.get(text, ""))


def is_terminal(stream: IO[Any]) -> bool:
    """Whether a person sits at ``stream``."""
    return stream.isatty()


def _speaks_unicode() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"


def _as_text(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return times.iso(value)
    return value.whole if isinstance(value, Short) else str(value)


def _plain(part: Part) -> list[str]:
    if isinstance(part, str):
        return [visible(part)]
    title = [visible(part.title)] if part.title else []
    if isinstance(part, Block):
        return title + ["  " + line for line in visible_lines(part.text)]
    if isinstance(part, Facts):
        pairs = [(name, visible(_as_text(value))) for name, value in part.given]
        return title + ["  " + line for line in _aligned(pairs, ())]
    rows = [[visible(_as_text(value)) for value in row] for row in part.rows]
    right = [place for place, column in enumerate(part.columns) if column.right]
    return title + _aligned([[column.title for column in part.columns], *rows], right)


def _aligned(rows: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for place, (text, width) in enumerate(zip(row, widths, strict=True)):
            blank = " " * (width - cell_len(text))
            cells.append(blank + text if place in right else text + blank)
        lines.append("  ".join(cells).rstrip())
    return lines


def _csv_lines(rows: Sequence[Record]) -> list[str]:
    paper = io.StringIO()
    writer = csv.writer(paper, lineterminator="\n")
    if rows:
        writer.writerow(rows[0])
    for row in rows:
        writer.writerow(_csv_cell(value) for value in row.values())
    return paper.getvalue().splitlines()


def _csv_cell(value: Any) -> Any:
    if value is None or isinstance(value, (int, float)):
        return value
    text = visible(value) if isinstance(value, str) else dump_json(value)
    # A spreadsheet would run a text that begins like a formula (CSV injection, OWASP).
    return "'" + text if text.startswith(("=", "+", "-", "@")) else text
