"""Decides whether a letter can be sent, and should be: its queue, its task, its age and redrives, its chord,
and its arguments against the task's signature. A letter that fails a check is skipped, with the reason."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from celery_dlq.base.redact import clip
from celery_dlq.errors import BodyTooLarge, PayloadError, RedriveError
from celery_dlq.model.assignment import signature_for_messages
from celery_dlq.model.letter import NO_TASK, DeadLetter
from celery_dlq.model.operation import Checking, Orders
from celery_dlq.redrive.broker.message import reason
from celery_dlq.redrive.broker.queues import Targets
from celery_dlq.redrive.gate import why_held
from celery_dlq.redrive.letter.chords import ChordMember, members_of, why_not_whole
from celery_dlq.redrive.letter.payload import OpenLetter, Payload, task_of

_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_NO_PLACE = "the queue it came from is unknown; give one with --to-queue, or discard it"

#: Patterns of the queues to which the app may send; None for all.
Queues: TypeAlias = Sequence[str] | None

#: Arguments and parameters of a difference that are named, and characters of a name.
_NAMED, _NAME = 5, 60


class Checked(NamedTuple):
    """What the checks of a letter have found."""

    #: Why it must not be sent; None if it may.
    why_not: str | None = None
    #: Why it may fail although it may be sent; empty for no reason.
    doubt: str = ""
    #: The members of chords to reopen before it is sent.
    members: Sequence[ChordMember] = ()


class Checks:
    """Checks each letter in the form in which it will be sent, after its repair. The broker's answers about
    queues are remembered, so each redrive has its own checks.

    :param queues: those to which it may send; None for all.
    :param is_approved: whether a second person has approved it.
    """

    def __init__(
        self,
        app: Any,
        orders: Orders,
        queues: Queues = None,
        is_approved: bool = True,
    ) -> None:
        self._app, self._checking = app, orders.checking
        self._queues, self._is_approved = queues, is_approved
        self._targets = Targets(app, elsewhere=orders.repair.to_queue)
        self._call_of = cache(lambda task: Call(app.tasks[task]))
        #: Tasks with their queues that passed the checks; nearly all letters share a few of them.
        self._passed: set[tuple[str, ...]] = set()

    def check(self, opened: OpenLetter, now: datetime, origin: str = "") -> Checked:
        """Whether the letter may be sent.

        :param origin: its task before its repair, if that was another one.
        :raises RedriveError: the result backend does not answer.
        """
        letter = opened.letter
        try:
            why_not = self._why_not(letter, now, origin)
            # Without a task, its body may be anything.
            is_over = why_not is not None or letter.task == NO_TASK
            return Checked(why_not) if is_over else self._checked_body(opened, now)
        except RedriveError:
            raise
        except Exception as error:  # noqa: BLE001 - a message may hold anything
            return Checked(f"it cannot be checked ({reason(error)}); repair it, or discard it")

    def _why_not(self, letter: DeadLetter, now: datetime, origin: str) -> str | None:
        """All checks but those of the body, in the order in which their reasons count."""
        task, envelope = task_of(letter), letter.envelope
        route = origin, letter.task, task, envelope.queue, envelope.exchange
        if route in self._passed:
            return why_excluded(letter, self._checking, now)
        why = (
            (None if envelope.queue or envelope.exchange else _NO_PLACE)
            or why_no_task(self._app, letter.task)
            or why_no_task(self._app, task)
            or why_held(self._app, "never", origin, letter.task, task)
            or self._why_not_approved(origin, letter.task, task)
            or why_excluded(letter, self._checking, now)
            or _why_forbidden(letter.queue, self._queues)
            or self._targets.why_not(letter.queue)
        )
        if why is None:
            self._passed.add(route)
        return why

    def _why_not_approved(self, *tasks: str) -> str | None:
        why = why_held(self._app, "approve", *tasks)
        return why if why and not self._is_approved else None

    def _checked_body(self, opened: OpenLetter, now: datetime) -> Checked:
        letter, task = opened.letter, task_of(opened.letter)
        try:
            payload = opened.outline
        except BodyTooLarge as error:
            # It can be sent unread, unless a check depends on the body.
            if letter.canvas != "chord":
                return Checked()
            next_step = "start the chord again, and discard this letter"
            return Checked(f"{error}, and it is in a chord; {next_step}")
        except PayloadError as error:
            return Checked(str(error))
        why_not, doubt = self._fit(task, payload)
        members = () if why_not else tuple(members_of(letter, payload))
        why_not = why_not or (self._why_not_whole(letter, members, now) if members else None)
        return Checked(why_not, doubt, members)

    def _fit(self, task: str, payload: Payload) -> tuple[str | None, str]:
        """Why Celery would not send these arguments, None if it would; and why the task may refuse them."""
        call, args, kwargs = self._call_of(task), payload.args, payload.kwargs
        try:
            call.check(args, kwargs)
        except TypeError as error:
            said = call.difference(args, kwargs) or error
            why = f"its arguments do not fit {task} any more: {said}; repair them, or discard it"
            return why, ""
        said = call.misfit(args, kwargs)
        return None, f"the run() of {task} takes other arguments ({said})" if said else ""

    def _why_not_whole(
        self, letter: DeadLetter, members: Sequence[ChordMember], now: datetime
    ) -> str | None:
        try:
            return why_not_whole(self._app, members, letter.last_failed_at, now)
        except Exception as error:
            raise RedriveError(
                f"The result backend does not answer ({type(error).__name__}: {error}); without it "
                "members of chords cannot be sent. Check result_backend."
            ) from error


def why_no_task(app: Any, task: str) -> str | None:
    """Why letters of ``task`` cannot be sent; None if they can."""
    if task in app.tasks or task == NO_TASK:
        # A message without a task is sent unchanged, once its cause is fixed: there is no task to look up.
        return None
    return f"task {task} is not registered in this app; deploy or import it, or discard its letters"


def _why_forbidden(queue: str, allowed: Queues) -> str | None:
    if allowed is None or any(fnmatchcase(queue, pattern) for pattern in allowed):
        return None
    name = f"queue {queue}" if queue else "its exchange"
    return f"dlq_redrive_queues of this app does not allow {name}; send it with --to-queue, or by another app"


def why_excluded(letter: DeadLetter, checking: Checking, now: datetime) -> str | None:
    """Why the orders exclude ``letter``; None if they do not."""
    limit, redriven = checking.max_redrives, letter.redrive_count
    if limit is not None and redriven >= limit:
        return f"it was redriven {redriven} times and came back; fix the cause, or send it with --again"
    if checking.max_age_s is not None and (
        (now - letter.last_failed_at).total_seconds() > checking.max_age_s
    ):
        return f"it failed at {letter.last_failed_at:%Y-%m-%d %H:%M:%S}, longer ago than max_age_s"
    if checking.unless_release is not None and letter.release == checking.unless_release:
        return f"it failed in release {letter.release}; deploy another release first"
    return None


class Call:
    """A call of a task.

    :param task: as the app has registered it.
    """

    def __init__(self, task: Any) -> None:
        #: The parameters that a message fills; None if they are unknown.
        self.signature: inspect.Signature | None
        try:
            self.signature = signature_for_messages(task)
        except (TypeError, ValueError):  # it is written in C
            self.signature = None
        is_typed = getattr(task, "typing", True)
        if not is_typed and hasattr(task, "flush_every"):
            # celery-batches gives run() a list of messages instead of the arguments of one.
            self.signature = None
        # Task classes have none, and for a decorated function it accepts anything.
        self._check = getattr(task, "__header__", None) if is_typed else None
        self._is_exact = self._check is not None and (
            _shape(inspect.signature(self._check, follow_wrapped=False)) == _shape(self.signature)
        )

    @property
    def parameters(self) -> list[str] | None:
        """The names of the parameters, with their stars; None if they are unknown."""
        if self.signature is None:
            return None
        known = self.signature.parameters.values()
        return [str(one.replace(annotation=one.empty, default=one.empty)) for one in known]

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Check the arguments as Celery's ``apply_async()`` does.

        :raises TypeError: Celery would not send them.
        """
        if self._check is not None:
            self._check(*args, **kwargs)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Check that the task can be called with these arguments, as far as its parameters are known.

        :raises TypeError: it cannot.
        """
        if self._is_exact:  # Celery's check is faster, but the signature gives the better error
            with suppress(TypeError):
                self.check(args, kwargs)
                return
        if self.signature is not None:
            self.signature.bind(*args, **kwargs)

    def misfit(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Why the task cannot be called with these arguments; empty if it can, as far as is known."""
        try:
            self.bind(args, kwargs)
        except TypeError as error:
            return self.difference(args, kwargs) or str(error)
        return ""

    def difference(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """The parameters that get no argument, and the arguments that no parameter takes, in words; empty if
        there are none."""
        if self.signature is None:
            return ""
        known = list(self.signature.parameters.values())
        filled, unexpected = _filled_by(known, len(args), kwargs)
        stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        needed = [one.name for one in known if one.default is one.empty and one.kind not in stars]
        parts = {
            "missing": [name for name in needed if name not in filled],
            "unexpected": unexpected,
        }
        return ", ".join(f"{what} {_some(names)}" for what, names in parts.items() if names)


def _filled_by(
    known: Sequence[inspect.Parameter], count: int, kwargs: Mapping[str, Any]
) -> tuple[set[str], list[str]]:
    """The parameters that get an argument, and the arguments that no parameter takes."""
    filled: set[str] = set()
    unexpected: list[str] = []
    for place, name in zip(range(count), _places(known, count), strict=True):
        _give(filled, unexpected, name, f"args[{place}]")
    by_name = {one.name for one in known if one.kind in _BY_NAME}
    rest = next((one.name for one in known if one.kind is one.VAR_KEYWORD), None)
    for key in kwargs:
        is_taken = key in by_name and key in filled
        name = None if is_taken else key if key in by_name else rest
        _give(filled, unexpected, name, f"kwargs.{key}")
    return filled, unexpected


def _places(known: Sequence[inspect.Parameter], count: int) -> Iterator[str | None]:
    """The names of the parameters that take ``count`` positional arguments; None for one that no parameter
    takes."""
    by_place = [one.name for one in known if one.kind in _BY_PLACE][:count]
    rest = next((one.name for one in known if one.kind is one.VAR_POSITIONAL), None)
    yield from by_place
    yield from (rest for _ in range(count - len(by_place)))


def _give(filled: set[str], unexpected: list[str], name: str | None, argument: str) -> None:
    if name is None:
        unexpected.append(argument)
    else:
        filled.add(name)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return " ".join(clip(name, _NAME) for name in names[:_NAMED]) + more


def _shape(signature: inspect.Signature | None) -> list[tuple[str, object, bool]] | None:
    if signature is None:
        return None
    parameters = signature.parameters.values()
    return [(one.name, one.kind, one.default is one.empty) for one in parameters]
