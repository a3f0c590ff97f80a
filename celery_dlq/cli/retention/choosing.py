"""Which archived letters a command is about."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click

from celery_dlq.archive.reading import Wanted
from celery_dlq.archive.segment import Line
from celery_dlq.cli.options import filters
from celery_dlq.cli.selection import with_positions
from celery_dlq.cli.session import Session
from celery_dlq.model.terms import (
    Term,
    hash_of_path,
    hash_of_value,
    terms_of_arguments,
    terms_of_message,
)
from celery_dlq.store.base import Argument, Filter

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: The filters whose values an archived letter has.
_FILTERS = (
    "task", "exception", "queue", "group", "route", "since", "until", "release", "tag", "root", "verdict",
    "rule", "args", "values",
)  # fmt: skip


def archived_filters(command: _Command) -> Callable[..., Any]:
    """Add ``--segment`` and the filters to a command; it is called with ``segment`` and ``wanted``."""
    segment = click.option(
        "--segment", metavar="ID", help="Only the letters of this segment; see `archive ls`."
    )
    return segment(filters(only=_FILTERS, states=())(command))


def archived(session: Session, ids: Sequence[str], segment: str | None, wanted: Filter) -> Wanted:
    """The archived letters that ids, a segment and filters select."""
    placed = with_positions(session, wanted)
    return Wanted(
        ids=frozenset(ids), segment=segment,
        failed_since=wanted.since, failed_until=wanted.until,
        where=lambda line: _matches(line["letter"], placed) and _has_values(line, placed),
    )  # fmt: skip


def _matches(letter: Line, wanted: Filter) -> bool:
    return (
        _has_name(letter["task"], wanted.task)
        and _has_name(letter["exception_type"], wanted.exception)
        and letter["fingerprint"].startswith(wanted.group or "")
        and wanted.queue in (None, letter["queue"])
        and wanted.route in (None, letter["route"])
        and wanted.release in (None, letter["release"])
        and wanted.verdict in (None, letter["verdict"])
        and letter["rule"].startswith(wanted.rule or "")
        and (wanted.tag is None or wanted.tag in json.loads(letter["tags"]))
        # A task that names no root is the root of the tasks that it sends.
        and wanted.root in (None, letter["root_id"] or letter["task_id"])
    )


def _has_values(line: Line, wanted: Filter) -> bool:
    if not wanted.asks_for_values:
        return True
    found = _terms(line)
    values = {one.value for one in found}
    return all(hash_of_value(value.strip()) in values for value in wanted.values) and all(
        any(term in found for term in _anywhere(argument, line["letter"]["task"]))
        for argument in wanted.args
    )


def _terms(line: Line) -> set[Term]:
    letter, content = line["letter"], line["content"]
    args, kwargs = json.loads(content["args"]), json.loads(content["kwargs"])
    # The store limits them for the size of its index, which the archive does not have.
    return terms_of_message(letter["message"]) | terms_of_arguments(args, kwargs, sys.maxsize)


def _anywhere(argument: Argument, task: str) -> Iterator[Term]:
    """The argument under its name, and in the position that it has in ``task``."""
    placed = [argument.path_at(position) for name, position in argument.positions if name == task]
    for path in (argument.path, *placed):
        yield Term(hash_of_value(argument.value), hash_of_path(path))


def _has_name(dotted: str, wanted: str | None) -> bool:
    """Whether a name is ``wanted``, in full or in its last part."""
    return wanted is None or dotted == wanted or dotted.endswith(f".{wanted}")
