"""Values as text for templates, which escape it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar
from urllib.parse import urlencode

from celery_dlq.base.codec import dump_json
from celery_dlq.base.redact import clip
from celery_dlq.model.automation import actor_of
from celery_dlq.model.handling import ADDRESSES
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.operation import ENDED, Sending
from celery_dlq.redrive.pacing import canary_succeeded
from celery_dlq.store.base import Operation
from celery_dlq.view import times
from celery_dlq.view.acts import sentence
from celery_dlq.view.automations import HELD, holding
from celery_dlq.view.groups import ends_of, standing
from celery_dlq.view.letters import (
    MEANINGS,
    argument_values,
    attempts_in_order,
    attempts_of,
    first_step,
    has_unread_body,
    named_arguments,
    said_of,
    sent_when,
    shown_body,
    why_title,
)
from celery_dlq.view.operations import (
    given_orders,
    letters_said,
    named_values,
    outcome_text,
    state_word,
    why_text,
)
from celery_dlq.view.stats import messages_of, redrives_of, said_why
from celery_dlq.view.text import (
    byte_size,
    counted,
    first_line,
    last_part,
    percent,
    short_ids,
    visible,
    visible_lines,
)
from celery_dlq.view.times import duration, rate
from celery_dlq.view.traceback import own_traceback, pieces

__all__ = [
    "HELD", "MEANINGS", "actor_of", "address", "ago", "attempts_in_order", "attempts_of", "byte_size",
    "counted", "diff", "duration", "ends_of", "fact", "first_step", "given_orders", "has_unread_body",
    "holding", "last_part", "letters_said", "line", "lines", "messages_of", "moment", "named_arguments",
    "named_values", "outcome_text", "own_traceback", "percent", "pieces", "query", "rate",
    "redrives_of", "said", "said_of", "said_why", "sent_when", "sentence", "short", "shown_body", "standing",
    "state_kind", "state_word", "value", "why_text", "why_title",
]  # fmt: skip

#: Characters of a line in a table, and of a block.
LINE_LIMIT, BLOCK_LIMIT = 200, 16_384

#: Arguments of a letter in a list, and characters of each.
_ARGUMENTS, _ARGUMENT_WIDTH = 6, 40

_OfLetter = TypeVar("_OfLetter", DeadLetter, Sending)

#: How long a button offers to ignore a group, as the form of its page reads it.
IGNORING = (
    ("tomorrow", "until tomorrow"),
    ("monday", "until Monday"),
    ("7d", "for a week"),
    ("", "until it is reopened"),
)

_SIGNS = {"- ": "old", "+ ": "new"}


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


def phases(operation: Operation) -> list[tuple[str, str, str]]:
    """The canary, and the other letters; empty without a canary. Each has a name, how far it has come, and
    the end of the CSS class of its key."""
    counts, canary = operation.counts, operation.orders.pacing.canary
    others = counts.planned - canary
    if not canary:
        return []
    has_passed, is_over = canary_succeeded(canary, counts), operation.state in ENDED
    if has_passed:
        sent = max(0, counts.out - canary)
        kind = "succeeded" if sent >= others else "failed" if is_over else "sent"
        first = ("Canary", f"all {canary:,} succeeded", "succeeded")
        second = ("The others", f"{sent:,} of {others:,} sent", kind)
    else:
        said = outcome_text(counts) or ("none sent" if is_over else "not sent yet")
        kind = "failed" if is_over or counts.failed or counts.unknown else "sent"
        first = ("Canary", f"{counts.out:,} of {canary:,} sent: {said}", kind)
        waits = "not sent" if is_over else "wait for the canary"
        second = ("The others", f"{others:,} {waits}", "left")
    return [first, second] if others > 0 else [first]


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


def with_short_ids(letters: Sequence[_OfLetter]) -> list[tuple[str, _OfLetter]]:
    """Letters, or what happened to some, each after the shortest beginning of its id."""
    return list(zip(short_ids([one.task_id for one in letters]), letters, strict=True))


def arguments(letter: DeadLetter, parameters: Sequence[str]) -> str:
    """The first arguments of a letter, each as filters name it; empty if they are unknown.

    :param parameters: the names of the task's positional parameters, as far as they are known.
    """
    return ", ".join(
        clip(value if path.isdigit() else f"{path}={value}", _ARGUMENT_WIDTH)
        for path, value in argument_values(letter, parameters, _ARGUMENTS)
    )


def query(pairs: Sequence[tuple[str, str]]) -> str:
    """The query string of an address."""
    return urlencode(pairs)
