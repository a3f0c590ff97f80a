"""Reopening chords: a chord counts each member of its header once, so a member that is sent again has to be
uncounted first."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

from celery.backends.base import Backend

from celery_dlq.errors import BodyTooLarge
from celery_dlq.model.letter import DeadLetter
from celery_dlq.redrive.chords.counted import CountedChords
from celery_dlq.redrive.chords.members import ChordMember, by_group, members_of
from celery_dlq.redrive.chords.polled import PolledChords
from celery_dlq.redrive.payload import Payload, accepted_by, read_payload


class Chords(Protocol):
    """How a result backend learns that all members of a chord have reported."""

    def why_not_whole(self, member: ChordMember, failed_at: datetime, now: datetime) -> str | None:
        """Why the chord would not complete if ``member`` were sent again; None if it would complete."""

    def reopen(self, group_id: str, members: Sequence[ChordMember]) -> None:
        """Uncount ``members`` of the chord, as if they had not reported. Idempotent."""


def why_not_whole(app: Any, letter: DeadLetter, payload: Payload, now: datetime) -> str | None:
    """Why the chords of ``letter`` would not complete if it were sent again; None if they would complete."""
    members = list(members_of(letter, payload))
    if not members:
        return None
    chords = _chords_of(app)
    if chords is None:
        return (
            "it is in a chord, whose members the app's result backend cannot count again; "
            "start the chord again, and discard this letter"
        )
    reasons = (chords.why_not_whole(member, letter.last_failed_at, now) for member in members)
    return next((reason for reason in reasons if reason), None)


def reopen_chords(app: Any, letters: Sequence[DeadLetter]) -> None:
    """Uncount the failed chord members of ``letters``. This happens for all letters before any is sent: if a
    member succeeded while the failure of another one still counted, the chord would fail again."""
    accepted = accepted_by(app)
    members = [
        member
        for letter in letters
        # Only these can lead to the body of a chord, and reading a message takes time.
        if letter.canvas in ("chord", "chain")
        for member in _readable_members(letter, accepted)
    ]
    chords = _chords_of(app) if members else None
    if chords is not None:
        for group_id, of_group in by_group(members).items():
            chords.reopen(group_id, of_group)


def _readable_members(letter: DeadLetter, accepted: frozenset[str]) -> Iterator[ChordMember]:
    # The checks pass a letter whose body is too large to be read, because such a letter is not in a chord.
    with contextlib.suppress(BodyTooLarge):
        yield from members_of(letter, read_payload(letter.envelope, accepted))


def _chords_of(app: Any) -> Chords | None:
    backend = app.backend
    if any(base.__module__ == "celery.backends.redis" for base in type(backend).__mro__):
        return CountedChords(backend)
    return PolledChords(app) if _is_polled(backend) else None


def _is_polled(backend: Any) -> bool:
    """Whether Celery polls the members' results. Memcached and similar backends count, but only upwards;
    django-celery-results has its own counters; others do not support chords."""
    knows_none = type(backend).__module__ in ("celery.backends.rpc", "celery.backends.base")
    counts = getattr(backend, "implements_incr", False)
    return not knows_none and not counts and type(backend).apply_chord is Backend.apply_chord
