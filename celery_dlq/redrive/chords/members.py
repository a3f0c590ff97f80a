"""The members of chords that Celery counts as failed when a letter's task fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from celery_dlq.model.letter import DeadLetter
from celery_dlq.redrive.payload import Payload

#: The most signatures that are followed from one message, so that a hostile one cannot keep a redrive busy.
_SIGNATURES = 10_000


@dataclass(frozen=True)
class ChordMember:
    """A task in the header of a chord."""

    group_id: str
    task_id: str
    #: Its place in the header; None if the header has no order.
    index: int | None
    #: The signature of the chord's body.
    body: Mapping[str, Any]


def members_of(letter: DeadLetter, payload: Payload) -> Iterator[ChordMember]:
    """The members that Celery counted as failed when the task of ``letter`` failed
    (``Backend.mark_as_failure``): that task, the tasks at the ends of the chains after it, and the chords
    around these."""
    if not (payload.rest.get("chord") or payload.rest.get("chain")):
        return  # most letters are in no chord
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
        member = _member(options)
        if member is not None:
            yield member
            left += _options_of(member.body)
        for link in _items(options.get("chain")):
            left += _options_of(link)


def by_group(members: Iterable[ChordMember]) -> dict[str, list[ChordMember]]:
    """``members`` by the group id of their chord."""
    groups: dict[str, list[ChordMember]] = {}
    for member in members:
        groups.setdefault(member.group_id, []).append(member)
    return groups


def why_revoked(backend: Any, member: ChordMember) -> str | None:
    """Why the body of a failed chord can no longer run; None if it can."""
    # Since 5.6 Celery revokes the tasks of such a body, and workers remember it.
    revokes = hasattr(backend, "_handle_group_chord_error")
    if revokes and member.body.get("subtask_type") == "group":
        return (
            "its chord has failed, and Celery has revoked the tasks of its body, a group; "
            "start the chord again, and discard this letter"
        )
    return None


def _member(options: Mapping[str, Any]) -> ChordMember | None:
    group_id, task_id, body = (options.get(name) for name in ("group_id", "task_id", "chord"))
    if not group_id or not task_id or not isinstance(body, Mapping):
        return None
    return ChordMember(str(group_id), str(task_id), options.get("group_index"), body)


def _options_of(signature: Any) -> list[Mapping[str, Any]]:
    """The options of ``signature``; for a chord or a chain, also those of the signatures that finish it."""
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
