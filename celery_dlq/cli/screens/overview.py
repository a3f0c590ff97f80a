"""The screen of ``dlq`` without a command: what is failing, and the next commands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from celery_dlq.cli.screens.group import OwnerOf, group_table
from celery_dlq.cli.screens.operation import Command, operation_table
from celery_dlq.cli.screens.render import Facts, Part
from celery_dlq.cli.screens.stats import glance
from celery_dlq.store.base import Operation, Stats
from celery_dlq.view.groups.listing import MOST_MARKED, Worklist


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The store at one moment."""

    stats: Stats
    worklist: Worklist
    #: Those that may still send.
    operations: tuple[Operation, ...]


def overview_parts(
    found: Overview, owner_of: OwnerOf, now: datetime, command: Command
) -> Iterator[Part]:
    """The parts of the screen.

    :param owner_of: the owner of the route with a name.
    :param command: makes command lines such as ``celery -A shop dlq list``.
    """
    yield glance(found.stats, drawn=True)
    if found.worklist.groups:
        yield group_table(found.worklist.groups, {}, {}, owner_of, now)
    else:
        yield (
            "No group has open letters."
            if not found.stats.depth
            else "All groups are ignored or resolved."
        )
    if any(found.worklist.marked.values()):
        yield _marked(found)
    if found.operations:
        yield operation_table(found.operations)
    yield Facts("Next", list(_next(found, command)))


def _marked(found: Overview) -> str:
    said = (
        f"{count:,}{' or more' * (count == MOST_MARKED)} {mark.value}"
        for mark, count in found.worklist.marked.items()
        if count
    )
    return f"Groups that need a decision: {', '.join(said)}."


def _next(found: Overview, command: Command) -> Iterator[tuple[str, str]]:
    if found.worklist.groups:
        worst = found.worklist.groups[0].fingerprint
        yield "One group", command("groups", "show", worst)
        yield "For a ticket", command("brief", worst)
        yield "Its letters", command("list", "--group", worst)
    else:
        yield "Check the set-up", command("doctor")
    if found.operations:
        yield "A redrive", command("operations", "show", found.operations[0].id)
    yield "All commands", command("--help")
