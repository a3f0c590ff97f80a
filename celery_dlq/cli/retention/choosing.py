"""Which archived letters a command is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from celery_dlq.archive.reading import Wanted
from celery_dlq.archive.segment import Line
from celery_dlq.cli.options import filters
from celery_dlq.store.base import Filter

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: The filters whose values an archived letter has.
_FILTERS = ("task", "exception", "queue", "group", "route", "since", "until")


def archived_filters(command: _Command) -> Callable[..., Any]:
    """Add ``--segment`` and the filters to a command; it is called with ``segment`` and ``wanted``."""
    segment = click.option(
        "--segment", metavar="ID", help="Only the letters of this segment; see `archive ls`."
    )
    return segment(filters(only=_FILTERS, states=())(command))


def archived(ids: Sequence[str], segment: str | None, wanted: Filter) -> Wanted:
    """The archived letters that ids, a segment and filters select."""
    return Wanted(
        ids=frozenset(ids), segment=segment,
        failed_since=wanted.since, failed_until=wanted.until,
        where=lambda line: _matches(line["letter"], wanted),
    )  # fmt: skip


def _matches(letter: Line, wanted: Filter) -> bool:
    return (
        _has_name(letter["task"], wanted.task)
        and _has_name(letter["exception_type"], wanted.exception)
        and letter["fingerprint"].startswith(wanted.group or "")
        and wanted.queue in (None, letter["queue"])
        and wanted.route in (None, letter["route"])
    )


def _has_name(dotted: str, wanted: str | None) -> bool:
    """Whether a name is ``wanted``, in full or in its last part."""
    return wanted is None or dotted == wanted or dotted.endswith(f".{wanted}")
