"""How far a long command is: a bar on a terminal, a line for each tenth elsewhere, both on stderr."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

from celery_dlq.cli.render import is_terminal


class Step(NamedTuple):
    """Where a command stands."""

    total: int
    done: int
    #: Text for a bar, and a longer one for a line.
    short: str
    long: str
    #: What it waits for; empty while it works.
    waits_for: str = ""


OnStep = Callable[[Step], None]


@contextmanager
def shown_progress(cli: Any, title: str) -> Iterator[OnStep]:
    """A callback that shows where a command stands, for as long as it runs."""
    if cli.quiet:
        yield lambda _progress: None
    elif is_terminal(sys.stderr):
        with _bar(cli, title) as update:
            yield update
    else:
        yield _lines(cli)


@contextmanager
def _bar(cli: Any, title: str) -> Iterator[OnStep]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn(title), BarColumn(), TaskProgressColumn(), MofNCompleteColumn(),
        TimeRemainingColumn(), TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    console = Console(stderr=True, force_terminal=True, no_color=cli.no_color)
    with Progress(*columns, console=console, transient=True) as bars:
        row = bars.add_task("", total=None, note="")

        def update(step: Step) -> None:
            note = f"waits for {step.waits_for}" if step.waits_for else step.short
            bars.update(row, total=step.total, completed=step.done, note=note)

        yield update


def _lines(cli: Any) -> OnStep:
    shown, waited_for = 0, set[str]()

    def update(step: Step) -> None:
        nonlocal shown
        tenths = 10 * step.done // max(1, step.total)
        # Each kind of wait once, whatever the number in it is.
        kind = re.sub(r"\d+", "", step.waits_for)
        if kind and kind not in waited_for:
            waited_for.add(kind)
            _say(cli, f"{step.done} of {step.total}: waits for {step.waits_for}")
        if tenths > shown:
            shown = tenths
            _say(cli, f"{step.done} of {step.total}: {step.long}")

    return update


def _say(cli: Any, line: str) -> None:
    # A reader of stderr that went away must not stop a command half-way.
    with contextlib.suppress(OSError):
        cli.error(line)


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
