"""How far a redrive is: a bar on a terminal, a line for each tenth elsewhere, both on stderr."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from celery_dlq.cli.render import is_terminal

if TYPE_CHECKING:
    from celery_dlq.redrive.plan import Progress

OnProgress = Callable[["Progress"], None]


@contextmanager
def shown_progress(cli: Any) -> Iterator[OnProgress]:
    """A callback that shows where a redrive stands, for as long as it runs."""
    if cli.quiet:
        yield lambda _progress: None
    elif is_terminal(sys.stderr):
        with _bar(cli) as update:
            yield update
    else:
        yield _lines(cli)


@contextmanager
def _bar(cli: Any) -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("Redriving"), BarColumn(), TaskProgressColumn(), MofNCompleteColumn(),
        TimeRemainingColumn(), TextColumn("{task.fields[skipped]} skipped"),
    )  # fmt: skip
    console = Console(stderr=True, force_terminal=True, no_color=cli.no_color)
    with Bars(*columns, console=console, transient=True) as bars:
        row = bars.add_task("", total=None, skipped=0)

        def update(progress: Progress) -> None:
            done = progress.sent + progress.skipped
            bars.update(row, total=progress.total, completed=done, skipped=progress.skipped)

        yield update


def _lines(cli: Any) -> OnProgress:
    shown = 0

    def update(progress: Progress) -> None:
        nonlocal shown
        done = progress.sent + progress.skipped
        tenths = 10 * done // max(1, progress.total)
        if tenths > shown:
            shown = tenths
            # A reader of stderr that went away must not stop a redrive half-way.
            with contextlib.suppress(OSError):
                cli.error(
                    f"{done} of {progress.total}: {progress.sent} sent, {progress.skipped} skipped"
                )

    return update


@contextmanager
def stopping_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed. The second one interrupts at once."""
    stopped = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield lambda: stopped
    finally:
        signal.signal(signal.SIGINT, before)
