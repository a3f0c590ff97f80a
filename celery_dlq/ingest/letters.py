"""Makes dead letters from messages in a broker's dead-letter queue."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeGuard

from celery_dlq.base.codec import dump_json
from celery_dlq.base.redact import clip, safe_text
from celery_dlq.ingest.source import BrokerMessage
from celery_dlq.model.fingerprint import Grounds
from celery_dlq.model.headers import DELIVERY_HEADERS, redrive_of
from celery_dlq.model.letter import Attempt, DeadLetter, Envelope, Failure
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.store.base import Filter
from celery_dlq.worker.end.letters import dead_letter
from celery_dlq.worker.failure import failure_after, read_attempts
from celery_dlq.worker.message import Contents, letter_id, read_contents
from celery_dlq.worker.wiring import Wiring

if TYPE_CHECKING:
    from celery_dlq.store import Store


#: The rule of every ingested letter: no exception was classified, because the broker decided.
RULE = "broker.dead_letter"

#: The most characters of a text from the broker or from another program that are shown.
_WORD_LIMIT = 100


@dataclass(frozen=True, kw_only=True)
class Ingested:
    """A letter made from a message that is still in the broker's queue."""

    letter: DeadLetter
    #: Whether the broker reported the time of the death; otherwise the letter has the time of its
    #: ingestion.
    dated: bool

    @property
    def placed(self) -> bool:
        """Whether it says to which queue a redrive sends it."""
        return bool(self.letter.envelope.queue or self.letter.envelope.exchange)


@dataclass(frozen=True, kw_only=True)
class LetterMaker:
    """Makes letters from the messages of one queue.

    :ivar queue: the dead-letter queue.
    :ivar to: queue for messages that do not say where they came from; empty if none was given.
    """

    queue: str
    to: str
    wiring: Wiring

    def make(self, taken: BrokerMessage, now: datetime) -> Ingested:
        """The letter of one message."""
        origin = origin_of(taken.envelope.headers)
        envelope = self._placed(taken.envelope, origin)
        contents = read_contents(envelope)
        delivery = taken.tag or digest_of(taken.envelope)
        letter = dead_letter(
            _letter_id(taken, contents, delivery),
            envelope,
            contents,
            self._failure(origin, now, contents, envelope, delivery),
            self.wiring,
        )
        return Ingested(letter=letter, dated=bool(origin and origin.died_at))

    def _placed(self, envelope: Envelope, origin: Origin | None) -> Envelope:
        """``envelope`` with the queue that it came from, so that a redrive sends it there."""
        if origin:
            place = (origin.queue, origin.exchange, origin.routing_key)
        elif self.to:
            place = (self.to, "", self.to)
        elif envelope.queue == self.queue:
            # It was sent directly to the dead-letter queue: a redrive must not send it there again.
            place = ("", "", "")
        else:
            return envelope
        return replace(envelope, queue=place[0], exchange=place[1], routing_key=place[2])

    def _failure(
        self,
        origin: Origin | None,
        now: datetime,
        contents: Contents,
        envelope: Envelope,
        delivery: str,
    ) -> Failure:
        """The death in the broker, as a failure: its word takes the place of the exception type."""
        if origin is None:
            kind, message = "broker.dead_letter", f"found in queue {self.queue!r}"
            evidence = f"taken from queue {self.queue}; the broker recorded no death"
        else:
            word = clip(safe_text(origin.reason), _WORD_LIMIT)
            times = f", count={origin.count}" if origin.count else ""
            kind, message = f"broker.{word}", safe_text(f"{word} in queue {origin.queue!r}")
            evidence = (
                f"reason={word}{times} in queue {origin.queue}, taken from queue {self.queue}"
            )
        last = Attempt(
            number=contents.attempt_number,
            redrive=redrive_of(envelope.headers),
            failed_at=(origin.died_at if origin else None) or now,
            exception_type=kind,
            # Identifies this delivery, in case an interrupted run brings it twice.
            message=f"{message}, delivery {delivery}",
            verdict=Verdict.TERMINAL,
            rule=RULE,
        )
        attempts = (*read_attempts(envelope.headers), last)
        failure = failure_after(attempts, Reason.INGESTED, traceback="", grounds=Grounds())
        explanation = replace(failure.explanation, evidence=evidence)
        return replace(failure, message=message, explanation=explanation)


def _letter_id(taken: BrokerMessage, contents: Contents, delivery: str) -> str:
    # As in a worker, the transport's tag, if there is one, names the letter of a message without an id.
    properties = {**taken.envelope.properties, "delivery_tag": taken.tag or None}
    tagged = replace(taken.envelope, properties=properties)
    return letter_id(tagged, contents.fields.get("id"), otherwise=f"no-id-{delivery}")


def digest_of(envelope: Envelope) -> str:
    """A hash that identifies the content of a message, as 32 hexadecimal digits."""
    # x-death stays, because the time of death in it distinguishes equal messages.
    passing = tuple(name for name in DELIVERY_HEADERS if name != "x-death")
    headers = {str(name): value for name, value in envelope.headers.items()}
    kept = [(name, headers[name]) for name in sorted(headers) if not name.startswith(passing)]
    data = dump_json(kept).encode("ascii") + b"\x00" + envelope.body
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def recall_times(store: Store, made: Sequence[Ingested]) -> list[DeadLetter]:
    """The letters of ``made``; those without a date get the time of an earlier ingestion of the same
    delivery.

    A run that is killed between commit and removal brings its messages in again. With a new time they would
    count as newer failures, and would open letters that have been closed since.
    """
    undated = tuple(item.letter.task_id for item in made if not item.dated)
    if not undated:
        return [item.letter for item in made]
    wanted = Filter(ids=undated, states=frozenset(State))
    if not store.letters.find(wanted, limit=1).letters:
        return [item.letter for item in made]
    return [item.letter if item.dated else _recalled(store, item.letter) for item in made]


def _recalled(store: Store, letter: DeadLetter) -> DeadLetter:
    stored = store.letters.get(letter.task_id)
    last = letter.attempts[-1]
    for attempt in stored.attempts if stored else ():
        if (attempt.rule, attempt.message) == (RULE, last.message):
            attempts = (*letter.attempts[:-1], replace(last, failed_at=attempt.failed_at))
            first = attempts[0].failed_at
            return letter.with_(
                attempts=attempts, first_failed_at=first, last_failed_at=attempt.failed_at
            )
    return letter


#: Queues of Celery's native delayed delivery, in which a message expires on purpose to move on.
_DELAY_QUEUE = "celery_delayed_"

#: Other headers of RabbitMQ in addition to ``x-death``, the latest death first (since 3.13).
_SHORT_MARKS = ("x-last-death", "x-first-death")


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The queue in which a message died, and how."""

    queue: str
    exchange: str
    routing_key: str
    #: The broker's word, such as ``rejected``, ``expired``, ``maxlen``, ``delivery_limit``.
    reason: str
    #: How often it died there for that reason; 0 if unknown.
    count: int = 0
    #: To the second; None if the broker does not say.
    died_at: datetime | None = None


def origin_of(headers: Mapping[str, Any]) -> Origin | None:
    """The latest death that the broker recorded in ``headers``; None if it recorded none."""
    return _from_table(headers) or _from_short_marks(headers)


def _from_table(headers: Mapping[str, Any]) -> Origin | None:
    """RabbitMQ's ``x-death``: a table for each queue and reason, the latest first."""
    deaths = headers.get("x-death")
    for death in deaths if isinstance(deaths, Sequence) else ():
        if isinstance(death, Mapping) and _is_death_in(death.get("queue")):
            return Origin(
                queue=death["queue"],
                exchange=_text(death.get("exchange")),
                routing_key=_first_text(death.get("routing-keys")) or death["queue"],
                reason=_text(death.get("reason")) or "dead_letter",
                count=count if isinstance(count := death.get("count"), int) else 0,
                died_at=_moment(death.get("time")),
            )
    return None


def _from_short_marks(headers: Mapping[str, Any]) -> Origin | None:
    for mark in _SHORT_MARKS:
        queue = headers.get(f"{mark}-queue")
        if _is_death_in(queue):
            return Origin(
                queue=queue,
                exchange=_text(headers.get(f"{mark}-exchange")),
                routing_key=queue,
                reason=_text(headers.get(f"{mark}-reason")) or "dead_letter",
            )
    return None


def _is_death_in(queue: object) -> TypeGuard[str]:
    return isinstance(queue, str) and queue != "" and not queue.startswith(_DELAY_QUEUE)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _first_text(values: object) -> str:
    return _text(values[0]) if isinstance(values, Sequence) and values else ""


def _moment(value: object) -> datetime | None:
    if not isinstance(value, datetime):
        return None
    # py-amqp returns UTC without a time zone.
    return value if value.tzinfo else value.replace(tzinfo=timezone.utc)
