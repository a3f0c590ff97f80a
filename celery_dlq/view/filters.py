"""A filter as a sentence."""

from __future__ import annotations

from collections.abc import Iterator

from celery_dlq.redrive.plan import NAMED_ONLY
from celery_dlq.store.base import Filter
from celery_dlq.view import times
from celery_dlq.view.text import counted

#: How each field that holds one text is said.
_SAID = {
    "task": "of the task {}",
    "exception": "with the exception {}",
    "queue": "in the queue {}",
    "group": "in the group {}",
    "route": "on the route {}",
    "worker": "from the worker {}",
    "release": "of the release {}",
    "tag": "with the tag {}",
    "root": "in the canvas {}",
    "rule": "judged by the rule {}",
    "operation": "of the operation {}",
    "search": "with the text “{}”",
}

#: Values that are said.
_VALUES = 5


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
