"""What a person decides about a group, as it stands in forms and JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from celery_dlq.errors import AmbiguousId, TriageError, UnknownGroup
from celery_dlq.flower.filters import Given
from celery_dlq.flower.request import first
from celery_dlq.group import Annotate, Assign, Group, GroupAct, Ignore, Reopen, Resolve
from celery_dlq.redact import clip
from celery_dlq.store.base import Store
from celery_dlq.view import times

#: Characters of an id that an error repeats.
_SHOWN = 80


def whole_group(store: Store, beginning: str, now: datetime) -> Group:
    """The group whose fingerprint begins like this.

    :raises UnknownGroup: there is none.
    :raises AmbiguousId: there are several.
    """
    shown = clip(beginning, _SHOWN)
    names = store.match_groups(beginning, limit=2)
    if len(names) > 1 and beginning not in names:
        raise AmbiguousId(f"More than one group begins with {shown!r}; give more characters.")
    found = store.group(beginning if beginning in names else names[0], now=now) if names else None
    if found is None:
        raise UnknownGroup(f"No group has the fingerprint {shown!r}, or one that begins like this.")
    return found


@dataclass(frozen=True)
class Form:
    """One act: the names of its fields, and how they are read."""

    names: tuple[str, ...]
    read: Callable[[Given, datetime], GroupAct]
    #: Whether they must be there: what is left out would remove what is kept.
    needed: bool = False


def _ignore(given: Given, now: datetime) -> Ignore:
    until, rate = first(given, "until").strip(), first(given, "rate").strip()
    try:
        return Ignore(
            until=times.parse_ahead(until, now) if until else None,
            rate=math.ceil(times.parse_rate(rate) * 3_600 - 1e-6) if rate else None,
            count=_number(first(given, "count").strip()),
        )
    except ValueError as error:
        raise TriageError(str(error)) from error


def _number(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise TriageError(f"A count must be a whole number above zero, not {text[:40]!r}.")
    return int(text)


#: By the word that names the act.
ACTS: Mapping[str, Form] = {
    "ignore": Form(("until", "rate", "count"), _ignore),
    "resolve": Form(
        ("release",), lambda given, _now: Resolve(release=first(given, "release").strip())
    ),
    "reopen": Form((), lambda _given, _now: Reopen()),
    "note": Form(
        ("note",), lambda given, _now: Annotate(note=first(given, "note").strip()), needed=True
    ),
    "assign": Form(
        ("owner",), lambda given, _now: Assign(owner=first(given, "owner").strip()), needed=True
    ),
}
