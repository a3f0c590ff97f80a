"""The order of steps at the end of a request: first its letter is made durable; then Celery stores the
result, announces the failure and acknowledges the message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from celery.exceptions import Reject
from celery.utils.log import get_logger

from celery_dlq.classify import is_a
from celery_dlq.model.delivery import GIVEN_BACK, Delivery
from celery_dlq.model.letter import DeadLetter, Outcome
from celery_dlq.model.states import State
from celery_dlq.redact import safe_message
from celery_dlq.worker.request.events import tell_dead

logger = get_logger(__name__)

#: A step of Celery's own: stores, announces, acknowledges or rejects.
Finish = Callable[[], object]


@dataclass
class Closing:
    """The progress of the end of a request that has a letter, or may get one."""

    #: The steps that wait for the letter, in order, because Celery may report one end twice. None once the
    #: letter is safe.
    waiting: list[Finish] | None = None
    is_safe: bool = False
    #: Whether the dead letter is announced to monitors. A retry that waits in the store is not announced.
    is_announced: bool = False


def close(request: Any, make: Callable[[], DeadLetter | None], finish: Finish) -> None:
    """Write the letter that ``make`` makes for ``request``, whose run has ended; then call ``finish``."""
    if request._dlq_closing is not None:
        _finish_after_letter(request, request._dlq_closing, finish)
        return
    letter = made(request, make)
    if letter is None:
        _finish_without_letter(request, finish)
    else:
        request._dlq_closing = Closing([finish])
        _write_letter(request, request._dlq_closing, letter)


def close_returned(
    request: Any,
    exc: BaseException,
    give_back: Finish,
    end: Finish,
    make: Callable[..., DeadLetter],
) -> None:
    """Count the delivery of ``request``, whose run died of ``exc``, then call ``give_back``, which returns
    its message to the queue. After too many deliveries, write a letter and call ``end`` instead.

    :param make: makes the letter of the deliveries that it is called with.
    """
    if request._dlq_closing is not None:
        _finish_after_letter(request, request._dlq_closing, give_back)
        return
    request._dlq_closing = Closing([])
    death = f"{type(exc).__name__}: {safe_message(exc)}"
    if is_a(exc, Reject):
        death = f"{GIVEN_BACK}: {death}"
    known = request.known_deliveries
    died = replace(known[-1], death=death) if known else request.as_delivery("", death=death)
    counted = partial(_counted, request, request._dlq_closing, make, give_back, end)
    request.dlq.deliveries.count_death(request, died, counted)


def write(request: Any, what: DeadLetter | Outcome, then: Finish) -> None:
    """Make ``what`` durable, then call ``then``."""
    # Until then, an unacknowledged message keeps another one from being delivered; and a success that the
    # flight recorder does not have would be lost with the worker.
    urgent = not request.acknowledged or isinstance(what, Outcome)
    request.dlq.write(what, then, urgent=urgent)


def made(request: Any, make: Callable[[], DeadLetter | None]) -> DeadLetter | None:
    """The letter that ``make`` makes; None, and a line in the log, if it fails."""
    try:
        return make()
    except Exception:
        # An exception from here would keep Celery from storing the result and acknowledging.
        logger.critical(
            "celery_dlq could not make a dead letter of %s[%s]; its message: body=%r headers=%r",
            request.name, request.id, request.message.body, request.message.headers, exc_info=True,
        )  # fmt: skip
        return None


def _counted(
    request: Any,
    closing: Closing,
    make: Callable[..., DeadLetter],
    give_back: Finish,
    end: Finish,
    known: tuple[Delivery, ...],
) -> None:
    letter, later = None, closing.waiting or []
    if request.dlq.deliveries.is_spent(known, request.message):
        letter = made(request, partial(make, known))
    closing.waiting = [give_back if letter is None else end, *later]
    if letter is None:
        _go_on(request, closing)
    else:
        _write_letter(request, closing, letter)


def _write_letter(request: Any, closing: Closing, letter: DeadLetter) -> None:
    write(request, letter, partial(_letter_is_safe, request, closing, letter))


def _letter_is_safe(request: Any, closing: Closing, letter: DeadLetter) -> None:
    closing.is_safe, closing.is_announced = True, letter.state is not State.PARKED
    _go_on(request, closing)


def _go_on(request: Any, closing: Closing) -> None:
    waiting, closing.waiting = closing.waiting or [], None
    for finish in waiting:
        _finish(request, closing, finish)
    _announce(request, closing)


def _finish_after_letter(request: Any, closing: Closing, finish: Finish) -> None:
    if closing.waiting is not None:
        closing.waiting.append(finish)
        return
    _finish(request, closing, finish)
    # Again, because finish() may have sent another task-failed.
    _announce(request, closing)


def _finish_without_letter(request: Any, finish: Finish) -> None:
    """Finish a run that has no letter: its message goes on, or was dropped on purpose."""
    if request.known_deliveries:
        # First, because the next delivery must not find the record of this one.
        request.dlq.deliveries.forget(request.known_deliveries, finish)
    else:
        finish()


def _finish(request: Any, closing: Closing, finish: Finish) -> None:
    """Call ``finish``. If the result backend is down, ``finish`` may raise before it has settled the message,
    or end the worker."""
    try:
        finish()
    except Exception:
        logger.exception("Celery failed to end %s[%s]", request.name, request.id)
        if closing.is_safe and not request.acknowledged:
            request.acknowledge()


def _announce(request: Any, closing: Closing) -> None:
    if closing.is_announced:
        tell_dead(request)
