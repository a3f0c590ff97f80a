"""Whether a letter can be sent at all, and should be: asked before it is, each "no" with its reason."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from celery_dlq.errors import PayloadError, RedriveError
from celery_dlq.letter import NO_TASK, DeadLetter
from celery_dlq.operation import Checking, Orders
from celery_dlq.redrive.canvas import why_not_whole
from celery_dlq.redrive.payload import Payload, accepted_by, read_payload, task_of
from celery_dlq.redrive.target import Targets
from celery_dlq.redrive.validate import Validator


@contextmanager
def open_checks(app: Any, orders: Orders) -> Iterator[Checks]:
    """The checks of one redrive; a process that validates for them ends with it."""
    checking = orders.checking
    if not checking.validate:
        yield Checks(app, orders)
        return
    with Validator(app, timeout_s=checking.validate_timeout_s) as validator:
        yield Checks(app, orders, validator)


class Checks:
    """Asked of each letter as it is to be sent, which is after its repair. What a broker says of a queue
    is remembered, so one redrive has one of these."""

    def __init__(self, app: Any, orders: Orders, validator: Validator | None = None) -> None:
        self._app, self._checking, self._validator = app, orders.checking, validator
        self._targets = Targets(app, elsewhere=orders.repair.to_queue)
        self._accepted = accepted_by(app)
        self._calls: dict[str, _Call] = {}
        #: Tasks and places of letters that were found right: nearly all letters have the same.
        self._right: set[tuple[str, ...]] = set()

    def why_not(self, letter: DeadLetter, now: datetime) -> str | None:
        """The reason why ``letter`` must not be sent; None when it may.

        :raises RedriveError: the result backend does not answer.
        """
        task, envelope = task_of(letter), letter.envelope
        kind = letter.task, task, envelope.queue, envelope.exchange
        if kind in self._right:
            why = why_held_back(letter, self._checking, now)
        else:
            why = self._why_wrong(letter, task, now)
            if why is None:
                self._right.add(kind)
        return why or self._why_unfit(letter, task, now)

    def _why_wrong(self, letter: DeadLetter, task: str, now: datetime) -> str | None:
        return (
            why_no_place(letter)
            or why_no_task(self._app, letter.task)
            or why_no_task(self._app, task)
            or why_held_back(letter, self._checking, now)
            or self._targets.why_not(letter.queue)
        )

    def _why_unfit(self, letter: DeadLetter, task: str, now: datetime) -> str | None:
        if letter.task == NO_TASK:
            return None  # its body may be anything
        try:
            payload = read_payload(letter.envelope, self._accepted, in_outline=True)
        except PayloadError as error:
            return str(error)
        return (
            self._why_unbound(task, payload)
            or self._why_not_whole(letter, payload, now)
            or (self._validator.why_not(letter) if self._validator else None)
        )

    def _why_unbound(self, task: str, payload: Payload) -> str | None:
        if task not in self._calls:
            self._calls[task] = _Call(self._app.tasks[task])
        try:
            self._calls[task].bind(payload)
        except TypeError as error:
            return f"its arguments do not fit {task} any more: {error}; repair them, or discard it"
        return None

    def _why_not_whole(self, letter: DeadLetter, payload: Payload, now: datetime) -> str | None:
        try:
            return why_not_whole(self._app, letter, payload, now)
        except Exception as error:
            raise RedriveError(
                f"The result backend does not answer ({type(error).__name__}: {error}); without it "
                "members of chords cannot be sent. Check result_backend."
            ) from error


def why_no_place(letter: DeadLetter) -> str | None:
    """The reason when it is not known where ``letter`` is to be sent."""
    if not letter.envelope.queue and not letter.envelope.exchange:
        return "the queue it came from is not known; give one with --to-queue, or discard it"
    return None


def why_no_task(app: Any, task: str) -> str | None:
    """The reason why no letter of ``task`` can be sent; None when they can."""
    if task in app.tasks or task == NO_TASK:
        # What names no task is sent as it is when its sender's or its readers' mistake is mended.
        return None
    return f"task {task} is not registered in this app; deploy or import it, or discard its letters"


def why_held_back(letter: DeadLetter, checking: Checking, now: datetime) -> str | None:
    """The reason when its operator does not want letters like ``letter``."""
    limit, redriven = checking.max_redrives, letter.redrive_count
    if limit is not None and redriven >= limit:
        return f"it was redriven {redriven} times and came back; mend its cause, or send it with --again"
    if checking.max_age_s is not None and _age_s(letter, now) > checking.max_age_s:
        return f"it failed at {letter.last_failed_at:%Y-%m-%d %H:%M:%S}, longer ago than --max-age"
    if checking.unless_release is not None and letter.release == checking.unless_release:
        return f"it failed in release {letter.release} itself; deploy another one first"
    return None


def _age_s(letter: DeadLetter, now: datetime) -> float:
    return (now - letter.last_failed_at).total_seconds()


class _Call:
    """How a task's body is called."""

    def __init__(self, task: Any) -> None:
        try:
            # Of run() and not of the function in it: a bound task is given itself by Celery.
            self._signature: inspect.Signature | None = inspect.signature(task.run)
        except (TypeError, ValueError):  # written in C
            self._signature = None
        # Celery's own check is quicker. Classes have none, and that of a wrapped function takes anything.
        check = getattr(task, "__header__", None)
        is_same = check is not None and _shape(inspect.signature(check)) == _shape(self._signature)
        self._check = check if is_same else None

    def bind(self, payload: Payload) -> None:
        """Check that the arguments of ``payload`` are those of a call.

        :raises TypeError: they are not.
        """
        if self._check is not None:
            try:
                self._check(*payload.args, **payload.kwargs)
            except TypeError:
                pass  # the other one says in what words
            else:
                return
        if self._signature is not None:
            self._signature.bind(*payload.args, **payload.kwargs)


def _shape(signature: inspect.Signature | None) -> list[tuple[str, object, bool]] | None:
    if signature is None:
        return None
    parameters = signature.parameters.values()
    return [(one.name, one.kind, one.default is one.empty) for one in parameters]
