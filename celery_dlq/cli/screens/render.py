"""The output of a screen: drawn on a terminal, plain in a pipe, or as data."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any

from celery_dlq.base.codec import dump_json
from celery_dlq.cli.screens.parts import (
    Block,
    Column,
    Facts,
    Part,
    Short,
    Table,
    Value,
    as_text,
    plain_part,
)
from celery_dlq.model.states import Reason
from celery_dlq.view import times
from celery_dlq.view.records import csv_lines
from celery_dlq.view.text import short_ids, visible, visible_lines

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

#: The widest line of a page of text.
_READABLE = 100

_STYLES = {
    **{reason.value: "red" for reason in Reason if reason not in (Reason.PARKED, Reason.UNSENT)},
    "transient": "yellow", "dead": "red", "claimed": "yellow", "redriven": "yellow",
    "waiting": "yellow", "torn": "red", "refused": "red",
    "stuck": "red", "uncovered": "yellow",
    "running": "yellow", "paused": "yellow", "aborted": "red", "failed": "red", "unknown": "yellow",
    "done": "green", "succeeded": "green", "skipped": "dim",
    "new": "yellow", "regressed": "red", "ignored": "dim",
    "resolved": "green", "discarded": "dim", "ok": "green", "warning": "yellow", "error": "red",
}  # fmt: skip


Record = Mapping[str, Any]


@dataclass(frozen=True)
class Screen:
    """The destination of output. Everything goes through Celery's ``echo``, which obeys ``--no-color``."""

    cli: Any
    #: Whether boxes and colours may be drawn.
    drawn: bool
    #: The columns of the terminal; of no use unless something is drawn.
    width: int
    #: Called late, because the clock is right only after the store is open.
    clock: Callable[[], datetime] = lambda: times.utc_now()

    @classmethod
    def of(cls, cli: Any) -> Screen:
        """The screen on stdout."""
        has_terminal = is_terminal(sys.stdout)
        width = shutil.get_terminal_size().columns
        return cls(cli, drawn=has_terminal and speaks_unicode(), width=width)

    @property
    def now(self) -> datetime:
        """The current time."""
        return self.clock()

    def show(self, *parts: Part) -> None:
        """Print the parts that have content, with an empty line between them."""
        if self.drawn:
            self.write(self.draw(*parts))
        else:
            self.write("\n\n".join("\n".join(plain_part(part)) for part in parts if part))

    def emit(self, form: str, records: Sequence[Record] | Record, *parts: Part) -> None:
        """Print ``records`` in the data format ``form``, or ``parts`` if it is ``table``."""
        if form == "table":
            self.show(*parts)
        elif form == "json":
            # dump_json handles NaN and foreign objects.
            self.write(json.dumps(json.loads(dump_json(records)), indent=2))
        else:
            rows = [records] if isinstance(records, Mapping) else records
            lines = map(dump_json, rows) if form == "jsonl" else csv_lines(rows)
            for line in lines:
                self.write(line)

    def write(self, text: str) -> None:
        """Print ``text``, in which nothing may control a terminal. Characters that the output does not have
        are escaped."""
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        self.cli.echo(text.encode(encoding, "backslashreplace").decode(encoding))

    def draw(self, *parts: Part) -> str:
        """``parts`` for a terminal, with an empty line between them."""

        def draw_all(console: Console) -> None:
            for position, part in enumerate(part for part in parts if part):
                if position:
                    console.print()
                self._draw_part(console, part)

        return self._drawn_by(draw_all, self.width)

    def draw_page(self, page: RenderableType) -> str:
        """A page of our documentation for a terminal, in lines of a readable length."""
        return self._drawn_by(lambda console: console.print(page), min(self.width, _READABLE))

    def _drawn_by(self, act: Callable[[Console], None], width: int) -> str:
        from rich.console import Console

        paper = io.StringIO()
        console = Console(
            file=paper, force_terminal=True, width=width, no_color=self.cli.no_color,
            highlight=False, markup=False, emoji=False,
        )  # fmt: skip
        act(console)
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

        grid = Grid(
            box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold"
        )  # fmt: skip
        drawn = [
            (column, self._drawn_cells(column, values))
            for column, *values in zip(table.columns, *table.rows, strict=True)
            if column.from_width <= self.width and any(map(as_text, values))
        ]
        for (column, _), width in zip(drawn, _widths(drawn, self.width), strict=True):
            # A word that is longer than the column, such as a path, continues on the next line.
            grid.add_column(
                column.title, justify="right" if column.right else "left", width=width,
                no_wrap=not column.fold, overflow="fold" if column.fold else "ellipsis",
            )  # fmt: skip
        for row in zip(*(cells for _, cells in drawn), strict=True):
            grid.add_row(*row)
        return grid

    def _drawn_cells(self, column: Column, values: Sequence[Value]) -> list[Text]:
        if column.ids:
            wholes = list(map(str, values))
            values = list(map(Short, short_ids(wholes), wholes))
        return [self._drawn_value(value) for value in values]

    def _drawn_value(self, value: Value, *, whole: bool = False) -> Text:
        from rich.text import Text

        if isinstance(value, datetime):
            ago = times.age(value, self.now)
            return Text(f"{times.local(value)} ({ago})" if whole else ago)
        if isinstance(value, Short) and not whole:
            return Text(visible(value.shown))
        text = visible(as_text(value))
        return Text(text, style=_STYLES.get(text, ""))


def _widths(drawn: Sequence[tuple[Column, Sequence[Text]]], width: int) -> list[int]:
    """The widths of columns on a terminal. Columns that may be cut share the room of the others: those that
    need least come first, and the widest one, such as a message, gets the rest."""
    from rich.cells import cell_len

    widths = [
        max(cell_len(column.title), *(one.cell_len for one in cells)) for column, cells in drawn
    ]
    cut = [place for place, (one, _) in enumerate(drawn) if not (one.rigid or one.right)]
    cut.sort(key=widths.__getitem__)
    # Two blanks are between columns.
    left = width + 2 - 2 * len(widths) - sum(widths) + sum(widths[place] for place in cut)
    while cut:
        place, *cut = cut
        share = max(left // (len(cut) + 2), left - sum(widths[other] for other in cut))
        widths[place] = max(1, min(widths[place], share))
        left -= widths[place]
    return widths


def is_terminal(stream: IO[Any]) -> bool:
    """Whether ``stream`` is a terminal."""
    return stream.isatty()


def speaks_unicode() -> bool:
    """Whether stdout has all characters."""
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
