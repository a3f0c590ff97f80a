"""Decisions about a group, read from forms and JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from celery_dlq.errors import TriageError
from celery_dlq.flower.filters import Given
from celery_dlq.flower.http.request import first
from celery_dlq.model.group import (
    Annotate,
    Assign,
    GroupAct,
    Ignore,
    Merge,
    Reopen,
    Resolve,
    Split,
)
from celery_dlq.view import times


@dataclass(frozen=True)
class Form:
    """One act: the names of its fields, and the function that reads them."""

    names: tuple[str, ...]
    read: Callable[[Given, datetime], GroupAct]
    #: What to say when it is done.
    done: str
    #: Whether the fields are required; a missing note or owner would otherwise remove the stored one.
    needed: bool = False


def _ignore(given: Given, now: datetime) -> Ignore:
    until, rate = first(given, "until").strip(), first(given, "rate").strip()
    try:
        return Ignore(
            until=times.parse_ahead(until, now) if until else None,
            rate=times.parse_hourly(rate) if rate else None,
            count=_number(first(given, "count").strip()),
        )
    except ValueError as error:
        raise TriageError(str(error)) from error


def _number(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise TriageError(f"count must be a whole number above zero, not {text[:40]!r}.")
    return int(text)


#: The forms by the name of the act.
ACTS: Mapping[str, Form] = {
    "ignore": Form(
        ("until", "rate", "count"),
        _ignore,
        "The group is ignored: the list leaves it out, and its letters are unchanged.",
    ),
    "resolve": Form(
        ("release",),
        lambda given, _now: Resolve(release=first(given, "release").strip()),
        "The group is resolved. Its letters are still open; redrive or discard them.",
    ),
    "reopen": Form((), lambda _given, _now: Reopen(), "The group is open."),
    "note": Form(
        ("note",),
        lambda given, _now: Annotate(note=first(given, "note").strip()),
        "The note was saved.",
        needed=True,
    ),
    "merge": Form(
        ("into",),
        lambda given, _now: Merge(into=first(given, "into").strip()),
        "The groups are merged. Letters of both are counted here.",
        needed=True,
    ),
    "split": Form(
        ("member",),
        lambda given, _now: Split(member=first(given, "member").strip()),
        "The merge was undone.",
    ),
    "assign": Form(
        ("owner",),
        lambda given, _now: Assign(owner=first(given, "owner").strip()),
        "The owner was saved.",
        needed=True,
    ),
}


def what_was_done(given: Given) -> str:
    """The sentence for a page that an act has led to; empty for any other page."""
    form = ACTS.get(first(given, "done"))
    return form.done if form else ""
