"""Chords that the task of a letter belonged to: whether they can still complete, and how a failed member is
uncounted before it is sent again. A chord counts each member of its header once.

Only this module talks to result backends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from celery import states
from celery.backends.base import Backend

from celery_dlq.model.headers import chord_key
from celery_dlq.model.letter import DeadLetter
from celery_dlq.redrive.letter.payload import Payload

#: The most signatures that are followed from one message, so that a hostile one cannot keep a redrive busy.
_SIGNATURES = 10_000

#: The suffixes of the keys that Celery's Redis result backend keeps for each chord: results by index, members
#: that reported, the size, how many members were added to it, the claim on the body.
_KEYS = (".j", ".d", ".s", ".t", ".c")


_AGAIN = "start the chord again, and discard this letter"
_FORGOTTEN = (
    "the result backend has forgotten its chord (result_expires), so its body would never run; "
    + _AGAIN
)


@dataclass(frozen=True)
class ChordMember:
    """A task in the header of a chord."""

    group_id: str
    task_id: str
    #: Its place in the header; None if the header has no order.
    index: int | None
    #: The signature of the chord's body.
    body: Mapping[str, Any]


def why_not_whole(
    app: Any, members: Sequence[ChordMember], failed_at: datetime, now: datetime
) -> str | None:
    """Why the chords of ``members`` would not complete if these were sent again; None if they would."""
    chords = _chords_of(app)
    if chords is None:
        return (
            "it is in a chord, whose members the app's result backend cannot count again; " + _AGAIN
        )
    reasons = (chords.why_not_whole(member, failed_at, now) for member in members)
    return next((reason for reason in reasons if reason), None)


def reopen_chords(app: Any, members: Sequence[ChordMember]) -> None:
    """Uncount failed ``members`` of chords. This happens for all letters before any is sent: if a member
    succeeded while the failure of another one still counted, the chord would fail again."""
    chords = _chords_of(app) if members else None
    if chords is not None:
        groups: dict[str, list[ChordMember]] = {}
        for member in members:
            groups.setdefault(member.group_id, []).append(member)
        for group_id, of_group in groups.items():
            chords.reopen(group_id, of_group)


def _chords_of(app: Any) -> CountedChords | PolledChords | None:
    backend = app.backend
    if any(base.__module__ == "celery.backends.redis" for base in type(backend).__mro__):
        return CountedChords(backend)
    # Memcached and similar backends count, but only upwards; django-celery-results has its own counters;
    # others do not support chords.
    knows_none = type(backend).__module__ in ("celery.backends.rpc", "celery.backends.base")
    counts = getattr(backend, "implements_incr", False)
    is_polled = not knows_none and not counts and type(backend).apply_chord is Backend.apply_chord
    return PolledChords(app) if is_polled else None


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


def _member(options: Mapping[str, Any]) -> ChordMember | None:
    group_id, task_id, body = (options.get(name) for name in ("group_id", "task_id", "chord"))
    if not group_id or not task_id or not isinstance(body, Mapping):
        return None
    return ChordMember(str(group_id), str(task_id), options.get("group_index"), body)


def _options_of(signature: Any) -> list[Mapping[str, Any]]:
    """The options of ``signature``; for a chord or a chain, also those of the signatures that finish it."""
    if not isinstance(signature, Mapping):
        return []
    kwargs, kind = _table(signature.get("kwargs")), signature.get("subtask_type")
    found = [_table(signature.get("options"))]
    if kind == "chord":
        found += _options_of(kwargs.get("body"))
    elif kind == "chain":
        found += [options for link in _items(kwargs.get("tasks")) for options in _options_of(link)]
    return found


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


class CountedChords:
    """Chords on Celery's Redis result backend. Reopening uncounts members in :data:`_KEYS`; the chord then
    completes by itself."""

    def __init__(self, backend: Any) -> None:
        self._backend, self._client = backend, backend.client

    def why_not_whole(self, member: ChordMember, failed_at: datetime, now: datetime) -> str | None:
        """Why the chord would not complete if ``member`` were sent again; None if it would complete."""
        results, _reported, size, _added, claim = self._keys(member.group_id)
        with self._client.pipeline(transaction=False) as pipe:
            has_size, has_results, claimed = pipe.exists(size).exists(results).get(claim).execute()
        if claimed == b"done" or has_size:
            return None
        if not has_results:
            return _FORGOTTEN
        return _why_revoked(self._backend, member)

    def reopen(self, group_id: str, members: Sequence[ChordMember]) -> None:
        """Uncount ``members`` of the chord, as if they had not reported. Idempotent."""
        results, reported, size, added, claim = self._keys(group_id)
        if self._client.get(claim) == b"done":
            return  # the chord has completed without them
        ordered = self._client.type(results) == b"zset"
        read = self._client.zrange if ordered else self._client.lrange
        arrived = list[bytes](read(results, 0, -1))
        if arrived and not self._client.exists(size):
            # Celery deletes the size when the chord fails, which is when all members have reported.
            total = len(arrived) - int(self._client.get(added) or 0)
            self._client.set(size, total, ex=self._backend.expires or None)
        ids = {member.task_id for member in members}
        with self._client.pipeline() as pipe:
            for found in (item for item in arrived if self._backend.decode(item)[1] in ids):
                pipe.zrem(results, found) if ordered else pipe.lrem(results, 1, found)
            places = [(one.task_id, "+inf" if one.index is None else one.index) for one in members]
            pipe.srem(reported, *(f"{task_id}:{index}" for task_id, index in places))
            pipe.delete(claim)
            pipe.execute()

    def _keys(self, group_id: str) -> list[Any]:
        return [self._backend.get_key_for_group(group_id, suffix) for suffix in _KEYS]


class PolledChords:
    """Chords on result backends that keep no counts, such as a database. Celery's ``chord_unlock`` task polls
    the members' results until all are in, and then sends the body. It ends when it finds a failure.

    Reopening forgets the failures of members, and starts the polling again if it has ended. By then, the
    members of the chord are known only because a worker kept its header
    (:mod:`celery_dlq.worker.builtin_tasks`)."""

    def __init__(self, app: Any) -> None:
        self._app, self._backend = app, app.backend

    def why_not_whole(self, member: ChordMember, failed_at: datetime, now: datetime) -> str | None:
        """Why the chord would not complete if ``member`` were sent again; None if it would complete."""
        if self._header(member.group_id) is not None:
            return _why_revoked(self._backend, member)
        if self._has_failed(_id_of(member.body)):
            return "its chord has failed, and no worker has kept which members it had; " + _AGAIN
        if self._is_over(failed_at, now) and not self._has_failed(member.task_id):
            return _FORGOTTEN
        return None

    def _is_over(self, failed_at: datetime, now: datetime) -> bool:
        """Whether the results of ``failed_at`` may have expired. Celery's ``backend_cleanup`` task deletes
        them; it may run late, or never."""
        expires = self._backend.prepare_expires(self._backend.expires, float)
        return bool(expires) and (now - failed_at).total_seconds() > expires

    def reopen(self, group_id: str, members: Sequence[ChordMember]) -> None:
        """Forget the failures of ``members`` of the chord, as if they had not reported. Idempotent."""
        for member in members:
            self._forget_failure(member.task_id)
        header = self._header(group_id)
        if header is not None:
            self._poll_again(group_id, header, members[0].body)

    def _poll_again(self, group_id: str, header: Any, body: Any) -> None:
        self._forget_failure(_id_of(body))
        self._backend.apply_chord((group_id, header.results), self._app.signature(dict(body)))
        # Deleted last: if the process is killed before it, two tasks poll the chord and its body may be sent
        # twice. In the other order the body would never be sent.
        self._backend.delete_group(chord_key(group_id))

    def _header(self, group_id: str) -> Any:
        return self._backend.restore_group(chord_key(group_id), cache=False)

    def _has_failed(self, task_id: str | None) -> bool:
        if task_id is None:
            return False
        meta = self._backend.get_task_meta(task_id, cache=False)
        return meta["status"] in states.PROPAGATE_STATES

    def _forget_failure(self, task_id: str | None) -> None:
        if task_id is not None and self._has_failed(task_id):
            self._backend.forget(task_id)


def _why_revoked(backend: Any, member: ChordMember) -> str | None:
    """Why the body of a failed chord can no longer run; None if it can."""
    # Since 5.6 Celery revokes the tasks of such a body, and workers remember it.
    revokes = hasattr(backend, "_handle_group_chord_error")
    if revokes and member.body.get("subtask_type") == "group":
        return (
            "its chord has failed, and Celery has revoked the tasks of its body, a group; " + _AGAIN
        )
    return None


def _id_of(body: Any) -> str | None:
    task_id = _table(body.get("options")).get("task_id")
    return None if task_id is None else str(task_id)
