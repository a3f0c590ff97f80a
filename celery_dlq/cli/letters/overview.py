"""``dlq`` without a command, on a terminal: what is failing, and the next commands."""

from __future__ import annotations

import shutil

import click

from celery_dlq.cli.screens.overview import Overview, overview_parts
from celery_dlq.cli.session import Session
from celery_dlq.errors import CeleryDLQError
from celery_dlq.view.groups.listing import worklist
from celery_dlq.view.operations import UNDER_WAY

#: Operations and groups that are shown at most.
_OPERATIONS, _GROUPS = 3, 10

#: The most lines that the parts other than the groups need.
_OTHER_LINES = 26


def show_overview(ctx: click.Context) -> None:
    """Print the overview. If the store cannot be read, print the help first, and end as a command does.

    :raises CeleryDLQError: the store cannot be read, or a setting is not valid.
    :raises click.UsageError: no app is given.
    """
    session = Session(ctx.obj, only_shows=True)
    try:
        found = _look(session)
    except (CeleryDLQError, click.UsageError):
        session.screen.write(f"{ctx.get_help()}\n")
        raise
    parts = overview_parts(found, session.queue.owner_of, session.screen.now, session.command)
    session.screen.show(*parts)


def _look(session: Session) -> Overview:
    store = session.store
    now = session.screen.now
    return Overview(
        stats=store.monitoring.stats(now),
        worklist=worklist(store, now, limit=_room_for_groups()),
        operations=tuple(store.operations.find(states=UNDER_WAY, limit=_OPERATIONS)),
    )


def _room_for_groups() -> int:
    return min(_GROUPS, max(3, shutil.get_terminal_size().lines - _OTHER_LINES))
