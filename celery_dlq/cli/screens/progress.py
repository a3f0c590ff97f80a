"""The progress of a long command on stderr: a bar on a terminal, a line per 10 % elsewhere."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

from celery_dlq.cli.screens.render import is_terminal

#: Seconds over which a rate is measured: long enough to be steady, short enough to show a change.
_WINDOW_S = 15.0
_LEAST_S = 1.0


class Step(NamedTuple):
    """The progress of a command."""

    total: int
    done: int
    #: A short text next to a bar, and a longer one for a line.
    short: str
    long: str
    #: The cause of a wait; empty while it works.
    waits_for: str = ""


OnStep = Callable[[Step], None]


@contextmanager
def shown_progress(cli: Any, title: str) -> Iterator[OnStep]:
    """A callback that shows the progress of a command while it runs."""
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
        # Report each kind of wait once; its numbers may differ.
        kind = re.sub(r"\d+", "", step.waits_for)
        if kind and kind not in waited_for:
            waited_for.add(kind)
            _say(cli, f"{step.done} of {step.total}: waits for {step.waits_for}")
        if tenths > shown:
            shown = tenths
            _say(cli, f"{step.done} of {step.total}: {step.long}")

    return update


def _say(cli: Any, line: str) -> None:
    # A closed stderr must not stop a command half-way.
    with contextlib.suppress(OSError):
        cli.error(line)


@contextmanager
def stopping_on_interrupt() -> Iterator[Callable[[], bool]]:
    """A function that says whether Ctrl-C was pressed. The second Ctrl-C interrupts at once."""
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


class Speed:
    """Measures how fast a count grows.

    :param monotonic: a clock that only goes forward, in seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, count: int) -> None:
        """Record the current count."""
        now = self._monotonic()
        self._seen.append((now, count))
        # Keep one older value, because the window starts with it.
        while len(self._seen) > 2 and self._seen[1][0] <= now - _WINDOW_S:
            self._seen.popleft()

    @property
    def per_second(self) -> float:
        """The growth per second; 0.0 until it was measured for a second: the first batch is not a rate."""
        if not self._seen:
            return 0.0
        (began, first), (now, last) = self._seen[0], self._seen[-1]
        return (last - first) / (now - began) if now - began >= _LEAST_S else 0.0

    def left_s(self, missing: int) -> float | None:
        """Seconds until the count has grown by ``missing``; None while it does not grow."""
        return missing / self.per_second if self.per_second else None
