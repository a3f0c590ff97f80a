"""The words of the matrix: a mode (a way in which a message can end), and the end that it must come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib.metadata import version
from typing import TYPE_CHECKING

from celery_dlq.model.states import Reason

if TYPE_CHECKING:
    from matrix.stage import Stage

BROKERS = ("redis", "classic", "quorum")
#: The page has a chapter of its own for the last one.
EVERYWHERE = (*BROKERS, "sqs")
POOLS = ("prefork", "threads", "solo", "gevent")
#: Pools that can end a running task.
CAN_CANCEL = ("prefork", "gevent")

CELERY = version("celery")


def minor(celery: str) -> tuple[int, int]:
    """The first two numbers of a version."""
    first, second, *_ = celery.split(".")
    return int(first), int(second)


class Place(str, Enum):
    """Where a message is when all is over."""

    DONE = "done"
    LETTER = "letter"
    #: A stated drop: expired, revoked, ignored.
    DROPPED = "dropped"
    #: Gone without a trace. No extension can close this; ``docs/operations.md`` says which setting does.
    LOST = "lost"
    #: There is no message: the caller or author of the task gets the error.
    RAISED = "raised"


@dataclass(frozen=True)
class Seen:
    """The traces of one message after a run."""

    #: Reason, exception type and attempts of each of its letters.
    letters: tuple[tuple[Reason, str, int], ...] = ()
    #: Its state in the result backend.
    result: str = "PENDING"
    #: How often a worker started it.
    runs: int = 0
    #: Its body, or what stands for it, ran to its end.
    finished: bool = False
    #: Its caller or author got the error.
    raised: bool = False


@dataclass(frozen=True)
class End:
    """The traces that a message must leave. None means that both values are right."""

    place: Place
    reason: Reason | None = None
    exception: str | None = None
    attempts: int | None = 1
    result: str | None = None
    runs: int | range | None = 1

    def holds(self, seen: Seen) -> bool:
        """Whether ``seen`` is this end."""
        return (
            self._place_holds(seen)
            and self.result in (None, seen.result)
            and self._runs_hold(seen.runs)
        )

    def _runs_hold(self, runs: int) -> bool:
        return runs in self.runs if isinstance(self.runs, range) else self.runs in (None, runs)

    def _place_holds(self, seen: Seen) -> bool:
        if self.place is Place.LETTER:
            return len(seen.letters) == 1 and self._letter_holds(*seen.letters[0])
        if seen.letters or seen.raised is not (self.place is Place.RAISED):
            return False
        return seen.finished is (self.place is Place.DONE)

    def _letter_holds(self, reason: Reason, exception: str, attempts: int) -> bool:
        return (
            reason is self.reason
            and self.exception in (None, exception)
            and self.attempts in (None, attempts)
        )


def done(*, runs: int | None = 1, result: str | None = "SUCCESS") -> End:
    """It ran to its end."""
    return End(Place.DONE, runs=runs, result=result)


def letter(
    reason: Reason,
    exception: str | None = None,
    *,
    attempts: int | None = 1,
    runs: int | range | None = 1,
    result: str | None = "FAILURE",
) -> End:
    """One open letter."""
    return End(Place.LETTER, reason, exception, attempts, result, runs)


def dropped(result: str | None = None, *, runs: int | None = 0) -> End:
    """A stated drop."""
    return End(Place.DROPPED, result=result, runs=runs)


@dataclass(frozen=True)
class Watched:
    """How to find the end of a message: its task id, and its kind if its id is not reliable."""

    task_id: str = ""
    #: The AMQP property ``type`` of a message of :mod:`foreign_messages`.
    kind: str = ""


@dataclass(frozen=True, kw_only=True)
class Mode:
    """One row of the matrix."""

    #: Short, stable, unique.
    id: str
    #: What happens, as the page says it.
    title: str
    #: What plain Celery does, in one sentence.
    plain: str
    #: What celery_dlq does, in one sentence.
    ours: str
    #: The name of the scene that it is a part of (:mod:`matrix.scenes`).
    scene: str
    #: Sends the message, and returns how to find its end.
    send: Callable[[Stage], Watched]
    end: End
    #: Pools, brokers, or ``broker-pool`` pairs in which it comes to another end.
    other_ends: Mapping[str, End] = field(default_factory=dict)
    #: The end before Celery 5.7, on every pool and broker, if it is another.
    end_before_5_7: End | None = None
    pools: tuple[str, ...] = POOLS
    brokers: tuple[str, ...] = EVERYWHERE
    #: Why not on the other pools or brokers.
    why_not: str = ""
    #: The part that it plays in its scene, if parts differ.
    part: str = ""

    def end_on(self, broker: str, pool: str, celery: str = CELERY) -> End:
        """The end that it must come to there, with that version of Celery."""
        if self.end_before_5_7 and minor(celery) < (5, 7):
            return self.end_before_5_7
        for place in (f"{broker}-{pool}", pool, broker):
            if place in self.other_ends:
                return self.other_ends[place]
        return self.end

    def applies_to(self, broker: str, pool: str) -> bool:
        """Whether the mode exists on that broker and pool."""
        return pool in self.pools and broker in self.brokers
