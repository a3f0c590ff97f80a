"""A chord counts each member of its header once; a member that is sent again must be uncounted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

from celery.backends.base import Backend

from celery_dlq.errors import PayloadError
from celery_dlq.letter import DeadLetter, Envelope
from celery_dlq.redrive.counted_chords import CountedChords
from celery_dlq.redrive.parts import Part, parts_of
from celery_dlq.redrive.payload import Payload, accepted_by, read_payload
from celery_dlq.redrive.polled_chords import PolledChords

_SHOWN = frozenset({"application/json"})


class Chords(Protocol):
    """How a result backend knows that all members of a chord are in."""

    def why_not_whole(self, part: Part, failed_at: datetime, now: datetime) -> str | None:
        """The reason why the chord would not complete with ``part`` sent again; None when it may."""

    def reopen(self, parts: Sequence[Part]) -> None:
        """Count ``parts`` as not being in. May be repeated."""


def why_not_whole(app: Any, letter: DeadLetter, payload: Payload, now: datetime) -> str | None:
    """The reason why the chords that ``letter`` is in would not complete; None when they may."""
    parts = list(parts_of(letter, payload))
    if not parts:
        return None
    chords = _chords_of(app)
    if chords is None:
        return (
            "it is in a chord, whose members the app's result backend cannot count again; "
            "start the chord anew, and discard this"
        )
    reasons = (chords.why_not_whole(part, letter.last_failed_at, now) for part in parts)
    return next((reason for reason in reasons if reason), None)


def reopen_chords(app: Any, letters: Sequence[DeadLetter]) -> None:
    """Take the failed parts of ``letters`` out of their chords' counts, for all letters before any is
    sent: a member that succeeds while another's failure still counts would fail the chord again."""
    accepted = accepted_by(app)
    parts = [
        part
        for letter in letters
        # Nothing else has the body of a chord behind it, and reading a message takes time.
        if letter.canvas in ("chord", "chain")
        for part in parts_of(letter, read_payload(letter.envelope, accepted))
    ]
    chords = _chords_of(app) if parts else None
    if chords is not None:
        chords.reopen(parts)


def errbacks_of(envelope: Envelope) -> tuple[str, ...]:
    """The tasks that were linked to the failure of a message, which ran when it died. Of a message in
    JSON only: nothing is unpickled to be shown."""
    try:
        linked = read_payload(envelope, _SHOWN, in_outline=True).rest.get("errbacks")
    except PayloadError:
        return ()
    found = linked if isinstance(linked, list) else ()
    return tuple(str(one.get("task")) for one in found if isinstance(one, dict))


def _chords_of(app: Any) -> Chords | None:
    backend = app.backend
    if any(base.__module__ == "celery.backends.redis" for base in type(backend).__mro__):
        return CountedChords(backend)
    return PolledChords(app) if _is_polled(backend) else None


def _is_polled(backend: Any) -> bool:
    """Whether a task of Celery's asks for the members' results. Memcached and its like count, but
    upwards only; django-celery-results has counters of its own; others know no chords at all."""
    knows_none = type(backend).__module__ in ("celery.backends.rpc", "celery.backends.base")
    counts = getattr(backend, "implements_incr", False)
    return not knows_none and not counts and type(backend).apply_chord is Backend.apply_chord
