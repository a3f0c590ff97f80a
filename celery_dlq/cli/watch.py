"""The store on a live screen."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import click

from celery_dlq.cli.exits import one_line
from celery_dlq.cli.group_view import group_table
from celery_dlq.cli.keys import pressed_keys
from celery_dlq.cli.operation_view import operation_table
from celery_dlq.cli.options import read_with
from celery_dlq.cli.render import Part, Screen
from celery_dlq.cli.session import Session
from celery_dlq.cli.stats_view import glance
from celery_dlq.group import Group
from celery_dlq.metrics.snapshot import Look, Snapshot, Snapshots
from celery_dlq.operation import OperationState
from celery_dlq.store.base import Filter, Operation, Stats, Store
from celery_dlq.view import times

#: Operations that may still send.
_UNDER_WAY = frozenset({OperationState.PLANNED, OperationState.RUNNING, OperationState.PAUSED})
_OPERATIONS = 5

#: Lines of the screen that are not groups, at most.
_OTHER_LINES = 22

#: Seconds between two drawings, in which ages go on.
_TICK_S = 1.0


@dataclass(frozen=True)
class _Seen:
    """What one look at the store gave."""

    stats: Stats
    groups: list[Group]
    operations: list[Operation]


def _interval(text: str) -> float:
    seconds = times.parse_span(text)
    if seconds < 0.5:
        raise ValueError(f"{text!r} is too often; the store is asked every 0.5s at most.")
    return seconds


@click.command("watch")
@click.option(
    "--interval", metavar="TIME", default="2s", show_default=True, callback=read_with(_interval),
    help="How often the store is asked.",
)  # fmt: skip
@click.pass_obj
def watch(cli: Any, interval: float) -> None:
    """Show depth, arrivals, groups and running redrives, live.

    Needs a terminal. Ends with q or Ctrl-C.
    """
    session = Session(cli)
    if not session.screen.drawn:
        raise click.UsageError(
            f"watch draws on a terminal that shows UTF-8; elsewhere use: {session.command('stats')}"
        )
    store = session.store
    snapshots = Snapshots(
        lambda: _look(store), patience_s=2 * session.queue.settings.store_timeout, fresh_s=interval
    )
    # Before the screen is taken: the first answer is worth waiting for.
    snapshots.look(session.queue.settings.store_timeout)
    with _live(cli) as show, pressed_keys() as key:
        _run(snapshots, show, key, min(interval, _TICK_S), f"every {times.duration(interval)}")


def _look(store: Store) -> _Seen:
    now = times.utc_now()
    return _Seen(
        stats=store.stats(now),
        groups=store.groups(Filter(), now=now, limit=_room_for_groups()),
        operations=store.operations(states=_UNDER_WAY, limit=_OPERATIONS),
    )


def _room_for_groups() -> int:
    return max(3, shutil.get_terminal_size().lines - _OTHER_LINES)


def _run(
    snapshots: Snapshots[_Seen],
    show: Callable[..., object],
    key: Callable[[float], str],
    tick_s: float,
    how_often: str,
) -> None:
    try:
        while True:
            show(*_parts(snapshots.look(0), how_often))
            if key(tick_s) in ("q", "Q"):
                return
    except KeyboardInterrupt:
        return


def _parts(look: Look[_Seen], how_often: str) -> Iterator[Part]:
    yield f"Dead letters, {how_often}; q ends"
    snapshot = look.snapshot
    if look.up is False:
        yield one_line(f"The store does not answer. {_since(snapshot)}")
    if snapshot is None:
        return
    seen = snapshot.value
    yield glance(seen.stats, drawn=True)
    yield group_table(seen.groups, {}, times.utc_now()) if seen.groups else "No letter is open."
    if seen.operations:
        yield operation_table(seen.operations)
    else:
        yield "No redrive is under way."


def _since(snapshot: Snapshot[_Seen] | None) -> str:
    if snapshot is None:
        return "Nothing is known yet."
    moment = datetime.fromtimestamp(snapshot.taken_at, timezone.utc)
    return f"What follows is as it was at {times.local(moment)}."


@contextmanager
def _live(cli: Any) -> Iterator[Callable[..., object]]:
    """Shows parts in the place of those before, on a screen of its own."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(force_terminal=True, no_color=cli.no_color)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        yield lambda *parts: live.update(
            # Anew each time, since the window may have changed its size.
            Text.from_ansi(Screen.of(cli).draw(*parts)),
            refresh=True,
        )
