"""Values as text for templates, which escape it."""

from __future__ import annotations

import contextlib
import json
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlencode

from celery_dlq.base.codec import dump_json
from celery_dlq.base.redact import clip
from celery_dlq.model.automation import actor_of
from celery_dlq.model.handling import ADDRESSES
from celery_dlq.store.base import Operation
from celery_dlq.view import times
from celery_dlq.view.groups import ends_of
from celery_dlq.view.letters import MEANINGS
from celery_dlq.view.operations import given_orders, letters_said, outcome_text, state_word
from celery_dlq.view.text import byte_size, counted, first_line, last_part, visible, visible_lines

__all__ = [
    "MEANINGS", "actor_of", "address", "ago", "byte_size", "counted", "diff", "duration", "ends_of", "fact",
    "given_orders", "last_part", "letters_said", "line", "lines", "moment", "outcome_text", "query", "rate",
    "said", "short", "span", "state_kind", "state_word", "value",
]  # fmt: skip

#: Characters of a line in a table, and of a block.
LINE_LIMIT, BLOCK_LIMIT = 200, 16_384

_SIGNS = {"- ": "old", "+ ": "new"}

duration, rate = times.duration, times.rate


def ago(when: datetime | None) -> str:
    """How long ago a moment was; empty for None."""
    return "" if when is None else times.age(when, times.utc_now())


def moment(when: datetime | None) -> str:
    """A moment in UTC; empty for None."""
    return "" if when is None else times.utc(when)


def short(when: datetime, *, seconds: bool = False) -> str:
    """A moment in UTC, without the year, and without the seconds unless they are asked for: ``26 Nov 09:04
    UTC``."""
    clock = "%H:%M:%S" if seconds else "%H:%M"
    return f"{when.astimezone(timezone.utc):%d %b {clock}} UTC"


def state_kind(operation: Operation) -> str:
    """The end of the CSS class for the state of an operation. One that is done is green only if all of its
    letters have succeeded."""
    word, counts = state_word(operation), operation.counts
    if word != "done" or counts.succeeded == counts.planned:
        return word
    return "sent" if counts.sent else "partly"


def span(since: datetime, until: datetime) -> str:
    """A time in UTC without the year: ``26 Nov 09:00 to 10:00 UTC``; with seconds if it is shorter than a
    minute."""
    first, last = (moment.astimezone(timezone.utc) for moment in (since, until))
    clock = "%H:%M:%S" if until - since < timedelta(minutes=1) else "%H:%M"
    day = "" if first.date() == last.date() else f"{last:%d %b} "
    return f"{first:%d %b} {first:{clock}} to {day}{last:{clock}} UTC"


def fact(found: object) -> str:
    """The value of a fact; a moment with its age."""
    if isinstance(found, datetime):
        return f"{moment(found)} ({ago(found)})"
    return line(str(found), BLOCK_LIMIT)


def address(url: str) -> str:
    """``url`` if a link may lead to it, otherwise an empty text. A browser would run an address of another
    kind, such as ``javascript:``."""
    return url if url.startswith(ADDRESSES) else ""


def said(name: str, value: str) -> str:
    """The value of the filter ``name``."""
    if name in ("since", "until"):
        with contextlib.suppress(ValueError):
            return moment(datetime.fromisoformat(value))
    if name == "held":
        return "yes"
    return line(value)


def line(text: str, limit: int = LINE_LIMIT) -> str:
    """The first line of a text, with hostile characters escaped."""
    return visible(clip(first_line(text), limit))


def lines(text: str, limit: int = BLOCK_LIMIT) -> str:
    """A text of several lines, with hostile characters escaped."""
    return "\n".join(visible_lines(clip(text, limit)))


def diff(text: str, limit: int = BLOCK_LIMIT) -> list[tuple[str, str]]:
    """The lines of a diff, with hostile characters escaped, each after its kind: ``old``, ``new`` or none."""
    return [(_SIGNS.get(said[:2], ""), said) for said in visible_lines(clip(text, limit))]


def value(found: Any, limit: int = BLOCK_LIMIT) -> str:
    """A value as JSON."""
    text = json.dumps(json.loads(dump_json(found)), ensure_ascii=False, indent=2)
    return "\n".join(visible_lines(clip(text, limit)))


def query(**pairs: str) -> str:
    """The query string of an address."""
    return urlencode(pairs)
