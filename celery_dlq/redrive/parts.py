"""The places in chords that a letter's failure has filled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from celery_dlq.letter import DeadLetter
from celery_dlq.redrive.payload import Payload

#: Signatures that are followed from one message; nobody has written more into a canvas.
_SIGNATURES = 10_000


@dataclass(frozen=True)
class Part:
    """A place in the header of a chord, and the task that fills it."""

    group_id: str
    task_id: str
    #: Which place; None where the header has no order.
    index: int | None
    #: The signature of the chord's body.
    body: Mapping[str, Any]


def parts_of(letter: DeadLetter, payload: Payload) -> Iterator[Part]:
    """The part that ``letter`` is, those at the ends of the chains behind it, and those of the chords
    around these. Celery has counted all of them as failed (``Backend.mark_as_failure``)."""
    if not (payload.rest.get("chord") or payload.rest.get("chain")):
        return  # as nearly all are
    headers = letter.envelope.headers
    left: list[Mapping[str, Any]] = [
        {
            "task_id": headers.get("id", letter.task_id),
            "group_id": headers.get("group"),
            "group_index": headers.get("group_index"),
            "chord": payload.rest.get("chord"),
            "chain": payload.rest.get("chain"),
        }
    ]
    for _ in range(_SIGNATURES):
        if not left:
            return
        options = left.pop()
        part = _part(options)
        if part is not None:
            yield part
            left += _options_of(part.body)
        for link in _items(options.get("chain")):
            left += _options_of(link)


def by_group(parts: Iterable[Part]) -> dict[str, list[Part]]:
    """``parts`` by the chord that they are in."""
    groups: dict[str, list[Part]] = {}
    for part in parts:
        groups.setdefault(part.group_id, []).append(part)
    return groups


def why_revoked(backend: Any, part: Part) -> str | None:
    """The reason why the body of a chord that has failed is not run any more; None when it may be."""
    # Since 5.6 Celery revokes the tasks of such a body, and workers remember it.
    revokes = hasattr(backend, "_handle_group_chord_error")
    if revokes and part.body.get("subtask_type") == "group":
        return (
            "its chord has failed, and Celery has revoked the tasks of its body, a group; "
            "start the chord anew, and discard this"
        )
    return None


def _part(options: Mapping[str, Any]) -> Part | None:
    group_id, task_id, body = (options.get(name) for name in ("group_id", "task_id", "chord"))
    if not group_id or not task_id or not isinstance(body, Mapping):
        return None
    return Part(str(group_id), str(task_id), options.get("group_index"), body)


def _options_of(signature: Any) -> list[Mapping[str, Any]]:
    """The options of ``signature``, and of those that end in its place where it is made of others."""
    if not isinstance(signature, Mapping):
        return []
    kwargs, kind = signature.get("kwargs") or {}, signature.get("subtask_type")
    found = [signature.get("options") or {}]
    if kind == "chord":
        found += _options_of(kwargs.get("body"))
    elif kind == "chain":
        found += [options for link in _items(kwargs.get("tasks")) for options in _options_of(link)]
    return found


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []
