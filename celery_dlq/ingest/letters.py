"""From a message in a broker's dead-letter queue to a dead letter."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from celery_dlq.codec import dump_json
from celery_dlq.headers import DELIVERY_HEADERS, redrive_of
from celery_dlq.ingest.origin import Origin, origin_of
from celery_dlq.ingest.taken import Taken
from celery_dlq.letter import Attempt, DeadLetter, Envelope, Explanation, Failure
from celery_dlq.redact import clip, safe_text
from celery_dlq.states import Reason, State, Verdict
from celery_dlq.store.base import Filter, Store
from celery_dlq.worker.body.failure import read_attempts
from celery_dlq.worker.foreign.raw import Contents, raw_letter, read_contents
from celery_dlq.worker.identity import letter_id
from celery_dlq.worker.wiring import Wiring

#: The rule that every ingested letter names: no exception was classified, the broker decided.
RULE = "broker.dead_letter"

#: Characters of a broker's or stranger's word that are shown.
_WORD_LIMIT = 100


@dataclass(frozen=True, kw_only=True)
class Ingested:
    """A letter made of a message that still is in the broker's queue."""

    letter: DeadLetter
    #: Whether the broker said when the message died; else the letter has the time of its ingestion.
    dated: bool

    @property
    def placed(self) -> bool:
        """Whether a redrive knows where to send it."""
        return bool(self.letter.envelope.queue or self.letter.envelope.exchange)


@dataclass(frozen=True, kw_only=True)
class _Death:
    """What there is to tell of a death in the broker."""

    #: Stands where a letter has the type of its exception.
    kind: str
    message: str
    evidence: str
    at: datetime


@dataclass(frozen=True, kw_only=True)
class LetterMaker:
    """Makes letters of what is taken from one queue.

    :ivar queue: the dead-letter queue.
    :ivar to: queue of messages that do not say where they came from; empty when none is given.
    :ivar worker: name of the worker that ingests; empty for a command.
    """

    queue: str
    to: str
    worker: str
    wiring: Wiring

    def make(self, taken: Taken, now: datetime) -> Ingested:
        """The letter of one message."""
        origin = origin_of(taken.envelope.headers)
        envelope = self._placed(taken.envelope, origin)
        contents = read_contents(envelope)
        delivery = taken.tag or digest_of(taken.envelope)
        letter = raw_letter(
            _letter_id(taken, contents, delivery),
            envelope,
            contents,
            self._failure(self._death(origin, now), contents, envelope, delivery),
            self.wiring,
        )
        return Ingested(letter=letter, dated=bool(origin and origin.died_at))

    def _placed(self, envelope: Envelope, origin: Origin | None) -> Envelope:
        """``envelope`` with the place that it came from, so that a redrive sends it there."""
        if origin:
            place = (origin.queue, origin.exchange, origin.routing_key)
        elif self.to:
            place = (self.to, "", self.to)
        elif envelope.queue == self.queue:
            # Sent to the dead-letter queue itself: a redrive must not send it there again.
            place = ("", "", "")
        else:
            return envelope
        return replace(envelope, queue=place[0], exchange=place[1], routing_key=place[2])

    def _death(self, origin: Origin | None, now: datetime) -> _Death:
        if origin is None:
            return _Death(
                kind="broker.dead_letter",
                message=f"found in queue {self.queue!r}",
                evidence=f"taken from queue {self.queue}; the broker noted no death",
                at=now,
            )
        word = clip(safe_text(origin.reason), _WORD_LIMIT)
        times = f", count={origin.count}" if origin.count else ""
        return _Death(
            kind=f"broker.{word}",
            message=safe_text(f"{word} in queue {origin.queue!r}"),
            evidence=f"reason={word}{times} in queue {origin.queue}, taken from queue {self.queue}",
            at=origin.died_at or now,
        )

    def _failure(
        self, death: _Death, contents: Contents, envelope: Envelope, delivery: str
    ) -> Failure:
        last = Attempt(
            number=contents.attempt_number,
            redrive=redrive_of(envelope.headers),
            failed_at=death.at,
            exception_type=death.kind,
            # What tells this delivery from others, should a run that is interrupted bring it twice.
            message=f"{death.message}, delivery {delivery}",
            verdict=Verdict.TERMINAL,
            rule=RULE,
            worker=self.worker,
        )
        return Failure(
            reason=Reason.INGESTED,
            explanation=Explanation(verdict=Verdict.TERMINAL, rule=RULE, evidence=death.evidence),
            exception_type=death.kind,
            message=death.message,
            traceback="",
            frames=(),
            failed_at=death.at,
            attempts=(*read_attempts(envelope.headers), last),
            pid=None,
        )


def _letter_id(taken: Taken, contents: Contents, delivery: str) -> str:
    # As a worker names the letter of such a message: by the transport's tag, where there is one.
    properties = {**taken.envelope.properties, "delivery_tag": taken.tag or None}
    tagged = replace(taken.envelope, properties=properties)
    return letter_id(tagged, contents.fields.get("id"), otherwise=f"no-id-{delivery}")


def digest_of(envelope: Envelope) -> str:
    """What tells a message from all that hold something else, as 32 hexadecimal digits."""
    # x-death stays: it has the time at which this message died, so equal messages tell apart.
    passing = tuple(name for name in DELIVERY_HEADERS if name != "x-death")
    headers = {str(name): value for name, value in envelope.headers.items()}
    kept = [(name, headers[name]) for name in sorted(headers) if not name.startswith(passing)]
    data = dump_json(kept).encode("ascii") + b"\x00" + envelope.body
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def recall_times(store: Store, made: Sequence[Ingested]) -> list[DeadLetter]:
    """The letters, undated ones with the time of an earlier ingestion of the same delivery.

    A run that is killed between commit and removal brings its messages again. With a time of their
    own they would count as newer failures, and open letters that have been closed since.
    """
    undated = tuple(item.letter.task_id for item in made if not item.dated)
    if not undated:
        return [item.letter for item in made]
    wanted = Filter(ids=undated, states=frozenset(State))
    if not store.find(wanted, limit=1).letters:
        return [item.letter for item in made]
    return [item.letter if item.dated else _recalled(store, item.letter) for item in made]


def _recalled(store: Store, letter: DeadLetter) -> DeadLetter:
    stored = store.get(letter.task_id)
    last = letter.attempts[-1]
    for attempt in stored.attempts if stored else ():
        if (attempt.rule, attempt.message) == (RULE, last.message):
            attempts = (*letter.attempts[:-1], replace(last, failed_at=attempt.failed_at))
            first = attempts[0].failed_at
            return letter.with_(
                attempts=attempts, first_failed_at=first, last_failed_at=attempt.failed_at
            )
    return letter
