"""Decides how a failure or a success changes the stored letter: pure decisions, without a database."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from celery_dlq.model.letter import Attempt, DeadLetter, Outcome
from celery_dlq.model.states import OPEN_STATES, Reason, State

#: Tells one failed run of a message from another: redrive, attempt number, time.
AttemptKey = tuple[int, int, datetime]


class Effect(Enum):
    """The effect of a saved failure on the stored letter."""

    #: No letter was stored under this task id.
    ARRIVED = "arrived"
    #: An open letter failed again: a redrive, or one whose confirmation was lost.
    DIED_AGAIN = "died again"
    #: A letter that waits got a newer account of the same run.
    REFRESHED = "refreshed"
    #: A closed letter failed again.
    REOPENED = "reopened"
    #: A closed letter's task id failed as a first delivery: another message under the same id.
    REUSED = "reused"
    #: The failure is out of date: only its attempts were not known.
    HISTORY = "history"
    #: This very failure is stored already.
    KNOWN = "known"


#: The effects that count as an arrival.
ARRIVALS = frozenset({Effect.ARRIVED, Effect.DIED_AGAIN, Effect.REOPENED, Effect.REUSED})
#: The effects that leave everything but the attempts alone.
UNCHANGED = frozenset({Effect.HISTORY, Effect.KNOWN})


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts about a stored letter that the decisions need."""

    state: State
    redrive_count: int
    #: The redrive that the last recorded failure belongs to.
    last_redrive: int
    last_failed_at: datetime
    closed_at: datetime | None = None
    attempts: frozenset[AttemptKey] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Change:
    """The changes to be written."""

    effect: Effect
    #: Attempts that are not stored yet.
    attempts: tuple[Attempt, ...]
    #: The facts once the change is made.
    facts: Facts

    @property
    def arrives(self) -> bool:
        """Whether the letter counts as one more dead letter."""
        return self.effect in ARRIVALS

    @property
    def rewrites(self) -> bool:
        """Whether the failure's own fields are replaced."""
        return self.effect not in UNCHANGED


def attempt_key(attempt: Attempt) -> AttemptKey:
    """The key of ``attempt`` among those of its letter."""
    return attempt.redrive, attempt.number, attempt.failed_at


def redrive_of(letter: DeadLetter) -> int:
    """The redrive that ``letter``'s failure belongs to; 0 is the original message."""
    return letter.attempts[-1].redrive if letter.attempts else letter.redrive_count


def merge(stored: Facts | None, letter: DeadLetter) -> Change:
    """The change that saving ``letter`` makes when ``stored`` is in the store under its task id."""
    known = stored.attempts if stored else frozenset()
    fresh = {attempt_key(item): item for item in letter.attempts}
    attempts = tuple(item for key, item in fresh.items() if key not in known)
    effect = _effect(stored, letter) if stored else Effect.ARRIVED
    return Change(
        effect=effect,
        attempts=attempts,
        facts=_facts_after(stored, letter, effect, known | {*fresh}),
    )


def resolves(stored: Facts, outcome: Outcome) -> bool:
    """Whether a success closes the letter: it is open, and has not failed after that success."""
    return stored.state in OPEN_STATES and (
        outcome.redrive > stored.last_redrive or outcome.succeeded_at >= stored.last_failed_at
    )


def _effect(stored: Facts, letter: DeadLetter) -> Effect:
    if letter.attempts and attempt_key(letter.attempts[-1]) in stored.attempts:
        return Effect.KNOWN
    if stored.state in OPEN_STATES:
        return _effect_on_open(stored, letter)
    return _effect_on_closed(stored, letter)


def _effect_on_open(stored: Facts, letter: DeadLetter) -> Effect:
    redrive = redrive_of(letter)
    if (redrive, letter.last_failed_at) <= (stored.last_redrive, stored.last_failed_at):
        return Effect.HISTORY
    if stored.state is State.DEAD:
        return _effect_on_waiting(stored, letter)
    # The count goes up with the claim: a message may have been sent from then on.
    return Effect.DIED_AGAIN if redrive >= stored.redrive_count else Effect.HISTORY


def _effect_on_waiting(stored: Facts, letter: DeadLetter) -> Effect:
    if redrive_of(letter) > stored.last_redrive:
        return Effect.DIED_AGAIN
    # A worker's account of this very run says more than the broker's, which follows from it.
    return Effect.HISTORY if letter.reason is Reason.INGESTED else Effect.REFRESHED


def _effect_on_closed(stored: Facts, letter: DeadLetter) -> Effect:
    redrive = redrive_of(letter)
    after = stored.closed_at is None or letter.last_failed_at > stored.closed_at
    if not after and redrive <= stored.redrive_count:
        return Effect.HISTORY
    return Effect.REUSED if redrive == 0 else Effect.REOPENED


def _facts_after(
    stored: Facts | None, letter: DeadLetter, effect: Effect, attempts: frozenset[AttemptKey]
) -> Facts:
    if stored and effect in UNCHANGED:
        return replace(stored, attempts=attempts)
    redrive = redrive_of(letter)
    return Facts(
        state=State.DEAD,
        redrive_count=max(stored.redrive_count if stored else letter.redrive_count, redrive),
        last_redrive=redrive,
        last_failed_at=letter.last_failed_at,
        attempts=attempts,
    )
