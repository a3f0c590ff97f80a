"""The facts about an operation; and operations and filters in words: orders, counts and outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from celery_dlq.model.operation import Counts, OperationState, Orders, Sending, SendingState
from celery_dlq.redrive.plan import NAMED_ONLY
from celery_dlq.store.base import Filter, Operation
from celery_dlq.view import times
from celery_dlq.view.fields import Field
from celery_dlq.view.text import counted
from celery_dlq.view.times import rate

#: The parts of an operation's screen that have facts.
REDRIVE, LETTERS = "redrive", "letters"

#: All facts about an operation.
OPERATION: Sequence[Field] = (
    Field("id", "Id", REDRIVE),
    Field("state"),
    Field("word", "State", REDRIVE, lambda one: state_word(one)),
    Field("cause", "Cause", REDRIVE),
    Field("", "Letters", REDRIVE, lambda one: letters_said(one.wanted)),
    Field("who", "By", REDRIVE, said=lambda one: f"{one.who} on {one.host}"),
    Field("host"),
    Field("app", read=attrgetter("home.app")),
    Field("namespace", "Namespace", REDRIVE),
    Field("broker", read=attrgetter("home.broker")),
    Field("", "For", REDRIVE, lambda one: " on ".join(filter(None, (one.home.app, one.home.broker)))),
    Field("detached", "Run by", REDRIVE, said=lambda one: "a worker" if one.detached else None),
    Field("created_at", "Created", REDRIVE),
    Field("started_at", "Started", REDRIVE),
    Field("ended_at", "Ended", REDRIVE),
    Field("planned", "Planned", LETTERS, attrgetter("counts.planned")),
    Field("sent", "Sent", LETTERS, attrgetter("counts.out")),
    Field("", "Sent again", LETTERS, lambda one: one.sent_again or None),
    Field("succeeded", "Succeeded", LETTERS, attrgetter("counts.succeeded")),
    Field("failed", "Failed again", LETTERS, attrgetter("counts.failed")),
    Field("awaited", "Awaited", LETTERS, attrgetter("counts.sent")),
    Field("unknown", read=attrgetter("counts.unknown")),
    Field("", "Unknown", LETTERS, lambda one: one.counts.unknown or None),
    Field("skipped", "Skipped", LETTERS, attrgetter("counts.skipped")),
    Field("left", "Left", LETTERS, attrgetter("counts.left")),
    Field("", "In hand", LETTERS, lambda one: one.counts.sending or None),
    Field("sent_again"),
    Field("wanted"),
    Field("orders"),
)  # fmt: skip

#: The states of operations that may still send.
UNDER_WAY = frozenset({OperationState.PLANNED, OperationState.RUNNING, OperationState.PAUSED})

#: The states of an operation's letters that are shown unless others are asked for.
TROUBLED = frozenset({SendingState.FAILED, SendingState.UNKNOWN, SendingState.SKIPPED})

#: Values of a filter or an order that are listed.
_NAMED = 5

#: The words for each field that holds one text.
_SAID = {
    "task": "of the task {}",
    "exception": "with the exception {}",
    "queue": "in the queue {}",
    "group": "in the group {}",
    "route": "on the route {}",
    "namespace": "of the namespace {}",
    "worker": "from the worker {}",
    "release": "of the release {}",
    "tag": "with the tag {}",
    "root": "in the canvas {}",
    "rule": "judged by the rule {}",
    "operation": "of the operation {}",
    "search": "with the text “{}”",
}

#: Values of arguments that are listed.
_VALUES = 5


def given_orders(orders: Orders) -> list[tuple[str, str]]:
    """The orders that differ from the defaults."""
    given, plain = orders.to_dict(), Orders().to_dict()
    why = given.pop("why")
    return [("why", why)] * bool(why) + [
        (name, rate(value) if name == "rate" else as_text(value))
        for part, values in given.items()
        for name, value in values.items()
        if value != plain[part][name]
    ]


def state_word(operation: Operation) -> str:
    """The state of an operation; ``failed`` if it is done, and every letter that was sent failed again."""
    is_failed = operation.state is OperationState.DONE and operation.counts.all_failed
    return "failed" if is_failed else operation.state.value


def named_values(values: Mapping[str, Any]) -> str:
    """``values``, including nested ones, on one line."""
    said = (
        named_values(value) if isinstance(value, Mapping) else f"{name}={as_text(value)}"
        for name, value in values.items()
    )
    return ", ".join(filter(None, said))


def as_text(value: Any) -> str:
    """``value``; of a long list, the first few items and the number of the others."""
    if not isinstance(value, (list, tuple)):
        return f"{value:g}" if isinstance(value, float) else str(value)
    more = f" and {len(value) - _NAMED:,} more" if len(value) > _NAMED else ""
    return " ".join(map(_item, value[:_NAMED])) + more


def _item(value: Any) -> str:
    if isinstance(value, Mapping) and value.keys() == {"path", "value", "positions"}:
        # An argument in a filter, as people write it.
        return f"{value['path']}={value['value']}"
    return str(value)


def outcome_text(counts: Counts) -> str:
    """The outcomes of the sent letters: ``3 succeeded, 1 failed again``."""
    named = [(counts.succeeded, "succeeded"), (counts.failed, "failed again"),
             (counts.unknown, "without an outcome"), (counts.sent, "awaited")]  # fmt: skip
    return ", ".join(f"{count:,} {what}" for count, what in named if count)


def why_text(sending: Sending) -> str:
    """Why a letter of an operation was skipped or failed, and how often its message was sent again."""
    again = counted(sending.sent_again, "time")
    vanished = f"its message had vanished and was sent again, {again}" * bool(sending.sent_again)
    return "; ".join(filter(None, (sending.why, vanished)))


def summary(counts: Counts) -> list[str]:
    """Sentences about the progress of an operation."""
    outcomes = outcome_text(counts)
    sent = f"Sent {counts.out:,} of {counted(counts.planned, 'dead letter')}"
    said = [f"{sent}: {outcomes}." if outcomes else f"{sent}."]
    if counts.skipped:
        said.append(f"{counted(counts.skipped, 'letter')} skipped and left unchanged.")
    if counts.sending:
        said.append(
            f"{counted(counts.sending, 'letter')} may have been sent, but the broker has not confirmed it; "
            "to be redriven again when the claim expires."
        )
    return said


def letters_said(wanted: Filter) -> str:
    """The letters of a filter: ``dead letters of the task charge, that failed before 12:00:00 UTC``. Texts of
    the filter are in it unchanged."""
    details = [*_details(wanted)]
    return f"{_kind(wanted)} {', '.join(details)}" if details else f"all {_kind(wanted)}"


def _kind(wanted: Filter) -> str:
    states = " or ".join(sorted(state.value for state in wanted.states)) or "open"
    return f"{states} letters"


def _details(wanted: Filter) -> Iterator[str]:
    if wanted.ids:
        yield f"with {counted(len(wanted.ids), 'chosen id')}"
    for name, said in _SAID.items():
        text = getattr(wanted, name)
        if text:
            yield said.format(text)
    if wanted.reason:
        yield f"with the reason {wanted.reason.value}"
    # Each redrive leaves these out, unless they are named.
    if wanted.without_reasons not in (frozenset(), frozenset(NAMED_ONLY)):
        reasons = " or ".join(sorted(reason.value for reason in wanted.without_reasons))
        yield f"with another reason than {reasons}"
    if wanted.verdict:
        yield f"with the verdict {wanted.verdict.value}"
    values = [f"with {argument}" for argument in wanted.args]
    values += [f"with the value {value}" for value in wanted.values]
    yield from values[:_VALUES]
    if len(values) > _VALUES:
        yield f"with {counted(len(values) - _VALUES, 'more value')}"
    if wanted.held:
        yield "held for a person"
    if wanted.since or wanted.until:
        yield _time(wanted)


def _time(wanted: Filter) -> str:
    bounds = (("since", wanted.since), ("before", wanted.until))
    said = (f"{word} {times.utc(moment)}" for word, moment in bounds if moment)
    return f"that failed {' and '.join(said)}"
