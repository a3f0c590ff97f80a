"""Decides which stored letter a failure or a success belongs to, and how it changes that letter: pure
decisions, without a database."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from celery_dlq.model.letter import Attempt, DeadLetter, Outcome, digest_of
from celery_dlq.model.states import OPEN_STATES, Reason, State
from celery_dlq.store.database import tables
from celery_dlq.store.rows.rows import fit_text, stored_id

#: Identifies one failed run of a message: redrive, attempt number, time.
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
    if stored.state is State.DEAD and redrive <= stored.last_redrive:
        # A worker's account of this very run says more than the broker's, which follows from it.
        return Effect.HISTORY if letter.reason is Reason.INGESTED else Effect.REFRESHED
    if stored.state is State.DEAD:
        return Effect.DIED_AGAIN
    # The count goes up with the claim: a message may have been sent from then on.
    return Effect.DIED_AGAIN if redrive >= stored.redrive_count else Effect.HISTORY


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


def named_apart(batch: Sequence[DeadLetter], owners: Mapping[str, Set[str]]) -> list[DeadLetter]:
    """``batch`` with other ids for letters whose ids belong to other messages, and a remark that says so.

    The letter of a redriven message is renamed only if another app has its id, because the message names it.

    :param batch: in the order in which letters are merged.
    :param owners: the identities of the open letters that are stored, by id; none for those of other apps.
    """
    known, apart = dict(owners), []
    for letter in batch:
        own = identity(letter.task, digest_of(letter.envelope.body), letter.namespace)
        owner = known.setdefault(letter.task_id, {own})
        is_own = own in owner or (bool(owner) and redrive_of(letter) > 0)
        apart.append(letter if is_own else _renamed(letter, own))
    return apart


def _renamed(letter: DeadLetter, own: str) -> DeadLetter:
    remark = f"another message has the id {letter.task_id}"
    evidence = "; ".join(filter(None, (letter.explanation.evidence, remark)))
    explained = replace(letter.explanation, evidence=evidence)
    return letter.with_(task_id=other_id(letter.task_id, own), explanation=explained)


def ids_of_success(outcome: Outcome) -> list[str]:
    """The ids that the letter of a success may have."""
    own = stored_id(outcome.task_id)
    # The message of a redrive names its letter, and may have been sent to another task.
    if outcome.redrive or not outcome.task:
        return [own]
    of_it = identity(outcome.task, outcome.digest, outcome.namespace)
    return [own, other_id(outcome.task_id, of_it)]


def letter_of_success(outcome: Outcome, owners: Mapping[str, Set[str]]) -> str:
    """The id of the letter that a success is of.

    :param owners: the identities of the letters that are stored under :func:`ids_of_success`, by id.
    """
    own, *other = ids_of_success(outcome)
    of_it = identity(outcome.task, outcome.digest, outcome.namespace)
    is_own = of_it in owners.get(own, ())
    return other[0] if other and not is_own else own


def identity(task: str, digest: str = "", namespace: str = "") -> str:
    """Identifies a message of ``task``, whose body has this ``digest``, among messages with one id. Every
    delivery of the message has the same identity. Without a digest, all messages of the task have one
    identity."""
    text = fit_text(tables.letter.c.task, task) + digest
    text += f"\0{namespace}" if namespace else ""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def other_id(task_id: str, own: str) -> str:
    """The id of the letter of a message with the identity ``own``, if the message's id belongs to another
    message."""
    return stored_id(f"{task_id}~{own}")
