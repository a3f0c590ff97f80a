"""The end of a request that has a letter, or may get one: first the letter is made durable; then Celery
stores the result, announces the failure and acknowledges the message. Monitors and the circuit breaker learn
of the end, too."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from celery.exceptions import TimeLimitExceeded
from celery.utils.log import get_logger
from celery.worker import state

from celery_dlq.classify import is_a
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State, Verdict
from celery_dlq.worker.body.ending import RunEnd
from celery_dlq.worker.celery_quirks.unacked_sqs import delete_if_rejected
from celery_dlq.worker.end.fate import is_internal
from celery_dlq.worker.failure import logged

logger: logging.Logger = get_logger(__name__)

#: A step of Celery's own: stores, announces, acknowledges or rejects.
Finish = Callable[[], object]

#: Celery shows an event of an unknown type as a state of that name, except for a task that has failed: only a
#: field ``state`` replaces FAILURE, and only if it comes after ``task-failed``.
DEAD_LETTERED, REDRIVEN = "task-dead-lettered", "task-redriven"

#: The states that monitors show for a dead letter, and while its message runs again.
DEAD_STATE, REDRIVEN_STATE = "DEAD-LETTERED", "REDRIVEN"


class Closing:
    """Closes ``request``, and remembers which of Celery's steps wait for the letter. Several may wait,
    because Celery may report one end twice."""

    def __init__(self, request: Any) -> None:
        self._request = request
        #: Celery's steps that wait for the letter, in order; None once nothing waits any more.
        self._waiting: list[Finish] | None = []
        self.is_safe: bool = False
        #: Whether the dead letter is announced to monitors. A retry that waits in the store is not announced.
        self._is_announced = False

    def when_written(self, finish: Finish) -> None:
        """Call ``finish`` when the letter is safe, after the steps that wait already; at once if nothing has
        to wait any more."""
        if self._waiting is not None:
            self._waiting.append(finish)
            return
        self._finish(finish)
        # Again, because finish() may have sent another task-failed.
        self._announce()

    def write(self, letter: DeadLetter, finish: Finish) -> None:
        """Make ``letter`` durable, then call ``finish`` and the steps that wait."""
        # Until then, an unacknowledged message keeps another one from being delivered.
        urgent = not self._request.acknowledged
        then = partial(self._is_written, letter, finish)
        self._request.dlq.write(letter, then, urgent=urgent)

    def write_now(self, letter: DeadLetter) -> None:
        """Make ``letter`` durable before returning, also from a signal handler. No step waits for it."""
        self._waiting = None
        self._request.dlq.write_now(letter)
        self.is_safe = True

    def run_waiting_steps(self, finish: Finish) -> None:
        """Call ``finish``, then the steps that wait."""
        waiting, self._waiting = self._waiting or [], None
        for step in (finish, *waiting):
            self._finish(step)
        self._announce()

    def _is_written(self, letter: DeadLetter, finish: Finish) -> None:
        self.is_safe, self._is_announced = True, letter.state is not State.PARKED
        delete_if_rejected(self._request.message)
        self.run_waiting_steps(finish)

    def _finish(self, finish: Finish) -> None:
        """Call ``finish``. If the result backend is down, ``finish`` may raise before it has settled the
        message, or end the worker."""
        request = self._request
        try:
            finish()
        except Exception:
            logger.exception("Celery failed to end %s[%s]", request.name, request.id)
            if self.is_safe and not request.acknowledged:
                request.acknowledge()

    def _announce(self) -> None:
        # In a cold shutdown, Celery does not announce failures either.
        if self._is_announced and not state.should_terminate:
            announce(self._request, DEAD_LETTERED, DEAD_STATE)


def announce(request: Any, event: str, shown_as: str) -> None:
    """Send monitors ``event`` about ``request``, for which they show the state ``shown_as``."""
    if not request.task._dlq_wiring.settings.events:
        return
    with logged(
        logger, "could not send an event about %s[%s]: %s", request.name, request.id, event
    ):
        # Celery sends it only if the worker and the task send events. Without the name, Flower lists a task
        # that is new to it as "null".
        request.send_event(event, name=request.name, state=shown_as)


class Probe(NamedTuple):
    """The one message of an open circuit that runs."""

    #: Task and key of the circuit.
    name: tuple[str, str]
    token: str


def report_to_valve(request: Any, end: RunEnd, exc: BaseException) -> None:
    """Report to the valve, once, that the run of ``request`` failed: it was retried, or died of ``exc``.
    This comes before its letter is written, because other messages run in the meantime."""
    if request._dlq_reported or is_internal(request):
        return
    request._dlq_reported = True
    # The next steps write the letter, and acknowledge the message.
    said = "the end of %s[%s] was not reported to the valve"
    with logged(logger, said, request.name, request.id):
        request.dlq.valve.ended(request, _verdict(request, end, exc))


def _verdict(request: Any, end: RunEnd, exc: BaseException) -> Verdict | None:
    """The verdict of the failure; None if it says nothing about the services that the task needs."""
    if end.failure is not None:
        return end.failure.explanation.verdict
    if end.for_error:
        return Verdict.TRANSIENT
    if is_a(exc, TimeLimitExceeded):
        verdict: Verdict = request.dlq.app.classifier.decide(exc).verdict
        return verdict
    return None
