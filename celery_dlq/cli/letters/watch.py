"""``dlq watch``, the store on a live screen; and ``dlq`` without a command: what is failing, and the next
commands."""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import IO, TYPE_CHECKING, Any

import click

from celery_dlq.cli.exits import one_line
from celery_dlq.cli.options import read_with
from celery_dlq.cli.screens.group import OwnerOf, group_table
from celery_dlq.cli.screens.operation import operation_table
from celery_dlq.cli.screens.parts import Part
from celery_dlq.cli.screens.render import Screen, is_terminal
from celery_dlq.cli.screens.stats import Overview, glance, overview_parts
from celery_dlq.cli.session import Session, pass_showing_session
from celery_dlq.errors import CeleryDLQError
from celery_dlq.metrics.snapshot import Look, Snapshot, Snapshots
from celery_dlq.model.group import Group
from celery_dlq.store.base import Filter, Operation, Stats
from celery_dlq.view import times
from celery_dlq.view.groups import worklist
from celery_dlq.view.operations import UNDER_WAY

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Operations that are shown at most on the live screen; and operations and groups in the overview.
_OPERATIONS = 5
_OPERATIONS_AT_ONCE, _GROUPS_AT_ONCE = 3, 10

#: The most lines that the parts other than the groups need, on the live screen and in the overview.
_LIVE_LINES, _OVERVIEW_LINES = 22, 26

#: Seconds between two drawings, so that ages keep counting.
_TICK_S = 1.0


#: Waits up to this many seconds for a key; returns the key, or an empty text.
Keys = Callable[[float], str]


@dataclass(frozen=True)
class _Seen:
    """The store at one moment."""

    stats: Stats
    groups: list[Group]
    operations: list[Operation]


def _interval(text: str) -> float:
    seconds = times.parse_span(text)
    if seconds < 0.5:
        raise ValueError(f"{text!r} is too short; write 0.5s or more.")
    return seconds


@click.command("watch")
@click.option(
    "--interval", metavar="TIME", default="2s", show_default=True, callback=read_with(_interval),
    help="Time between two reads of the store.",
)  # fmt: skip
@pass_showing_session
def watch(session: Session, interval: float) -> None:
    """Show depth, arrivals, groups and running redrives, live.

    Needs a terminal. Press q or Ctrl-C to quit.
    """
    if not session.screen.drawn:
        raise click.UsageError(
            f"watch needs a terminal that shows UTF-8; elsewhere, use: {session.command('stats')}"
        )
    store = session.store
    snapshots = Snapshots(
        lambda: _look(store), patience_s=2 * session.queue.settings.store_timeout, fresh_s=interval
    )
    # Wait for the first answer before the screen is taken over.
    snapshots.look(session.queue.settings.store_timeout)
    how_often, owner_of = f"every {times.duration(interval)}", session.queue.owner_of
    pressed = ""
    with _live(session.cli) as show, pressed_keys() as key, suppress(KeyboardInterrupt):
        while pressed not in ("q", "Q"):
            show(*_parts(snapshots.look(0), how_often, owner_of))
            pressed = key(min(interval, _TICK_S))


def _look(store: Store) -> _Seen:
    now = times.utc_now()
    return _Seen(
        stats=store.monitoring.stats(now),
        groups=store.groups.find(Filter(), now=now, limit=_room_for_groups(_LIVE_LINES)),
        operations=store.operations.find(states=UNDER_WAY, limit=_OPERATIONS),
    )


def _room_for_groups(other_lines: int) -> int:
    return max(3, shutil.get_terminal_size().lines - other_lines)


def _parts(look: Look[_Seen], how_often: str, owner_of: OwnerOf) -> Iterator[Part]:
    yield f"Dead letters, {how_often}; press q to quit"
    snapshot = look.snapshot
    if look.up is False:
        yield one_line(f"The store does not answer. {_since(snapshot)}")
    if snapshot is None:
        return
    seen = snapshot.value
    yield glance(seen.stats, drawn=True)
    yield (
        group_table(seen.groups, {}, {}, owner_of, times.utc_now())
        if seen.groups
        else "There are no open letters."
    )
    if seen.operations:
        yield operation_table(seen.operations)
    else:
        yield "No redrive is running."


def _since(snapshot: Snapshot[_Seen] | None) -> str:
    if snapshot is None:
        return "It has not answered yet."
    moment = datetime.fromtimestamp(snapshot.taken_at, timezone.utc)
    return f"The data below is from {times.local(moment)}."


@contextmanager
def _live(cli: Any) -> Iterator[Callable[..., object]]:
    """Gives a function that draws parts on a screen of its own, in place of the previous ones."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(force_terminal=True, no_color=cli.no_color)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        yield lambda *parts: live.update(
            # A new Screen each time, because the window may have been resized.
            Text.from_ansi(Screen.of(cli).draw(*parts)),
            refresh=True,
        )


@contextmanager
def pressed_keys(stream: IO[Any] | None = None) -> Iterator[Keys]:
    """Keys pressed on the terminal ``stream`` (None: standard input), read without Enter and not echoed.
    Ctrl-C still interrupts. If the stream is not a terminal, no key ever arrives."""
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
    # Read the descriptor: select() does not see characters that the stream has buffered.
    return os.read(source.fileno(), 1).decode(errors="replace") if ready else ""


def show_overview(ctx: click.Context) -> None:
    """Print the overview. If the store cannot be read, print the help first, and end as a command does.

    :raises CeleryDLQError: the store cannot be read, or a setting is not valid.
    :raises click.UsageError: no app is given.
    """
    session = Session(ctx.obj, only_shows=True)
    try:
        store, now = session.store, session.screen.now
        room = min(_GROUPS_AT_ONCE, _room_for_groups(_OVERVIEW_LINES))
        found = Overview(
            stats=store.monitoring.stats(now),
            worklist=worklist(store, now, limit=room),
            operations=store.operations.find(states=UNDER_WAY, limit=_OPERATIONS_AT_ONCE),
        )
    except (CeleryDLQError, click.UsageError):
        session.screen.write(f"{ctx.get_help()}\n")
        raise
    parts = overview_parts(found, session.queue.owner_of, session.screen.now, session.command)
    session.screen.show(*parts)
