"""Keys that are pressed while a screen is shown."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from celery_dlq.cli.render import is_terminal

#: Waits for a key so many seconds; gives it, or nothing.
Keys = Callable[[float], str]


@contextmanager
def pressed_keys(stream: IO[Any] | None = None) -> Iterator[Keys]:
    """What is pressed on the terminal that ``stream`` is (None: standard input), without Enter and without
    being shown. Ctrl-C interrupts as ever. Where it is no terminal, no key is ever pressed."""
    source = sys.stdin if stream is None else stream
    if not is_terminal(source):
        yield _wait
        return
    before = termios.tcgetattr(source)
    tty.setcbreak(source)
    try:
        yield lambda within_s: _next_key(source, within_s)
    finally:
        termios.tcsetattr(source, termios.TCSADRAIN, before)


def _wait(within_s: float) -> str:
    time.sleep(within_s)
    return ""


def _next_key(source: IO[Any], within_s: float) -> str:
    ready, _, _ = select.select([source], [], [], within_s)
    # Not through the stream: what it reads ahead is not seen by select().
    return os.read(source.fileno(), 1).decode(errors="replace") if ready else ""
