"""From a letter to a message that may be sent. It is changed: by upgrades, assignments, repairs of the user,
and another route. Then it is checked. Its body is decoded once, and the letter keeps its original.

A plan prepares the first letters, and the run prepares each of them again, because time passes between: a
person confirms, or a worker takes the operation over. By then the app may have other tasks or repairs, the
broker other queues, and the result backend may have forgotten a chord.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from celery_dlq.base.redact import Redactor, clip
from celery_dlq.errors import FunctionHangs, RepairError
from celery_dlq.model.assignment import Assignment, parse_assignment
from celery_dlq.model.letter import DeadLetter, Envelope
from celery_dlq.model.operation import Orders, Repair
from celery_dlq.redrive.broker.message import reason
from celery_dlq.redrive.context import RedriveContext
from celery_dlq.redrive.letter.checks import Call, Checks
from celery_dlq.redrive.letter.chords import ChordMember
from celery_dlq.redrive.letter.contents import (
    LINE,
    contents_of,
    describe,
    why_not_set,
    with_contents,
)
from celery_dlq.redrive.letter.functions import Calls, Upgrade, functions_of
from celery_dlq.redrive.letter.payload import (
    OpenLetter,
    accepted_by,
    parameters_of,
    task_of,
    write_payload,
)
from celery_dlq.store.hiding import hide_assignment


def described(repair: Repair, redactor: Redactor) -> dict[str, Any]:
    """The changes of ``repair``, for people: secrets are hidden.

    :raises RepairError: an assignment is wrong.
    """
    given = repair.given
    texts = given.pop("assignments", ())
    if texts:
        given["set"] = [
            clip(hide_assignment(parse_assignment(text), redactor), LINE) for text in texts
        ]
    if repair.eta is not None:
        given["eta"] = repair.eta.isoformat()
    return given


class Prepared(NamedTuple):
    """A letter as it would be sent: repaired, and then checked."""

    opened: OpenLetter
    #: The changes in its message, as lines of a diff; empty for none.
    change: str = ""
    #: Why it must not be sent; None if it may.
    why_not: str | None = None
    #: Why it may fail although it may be sent; empty for no reason.
    doubt: str = ""
    #: The members of chords to reopen before it is sent.
    members: Sequence[ChordMember] = ()

    @property
    def letter(self) -> DeadLetter:
        """The changed letter; the original one if it cannot be repaired."""
        return self.opened.letter


class Repairs:
    """The changes of one redrive: upgrades, assignments, the repair that it names, and other routes, in this
    order.

    :raises RepairError: an assignment is wrong, or the app has no such repair.
    """

    def __init__(self, app: Any, repair: Repair, redactor: Redactor) -> None:
        self._app, self._repair, self._redactor = app, repair, redactor
        # A redrive has thousands of letters of one task.
        self._parameters_of = functools.cache(functools.partial(parameters_of, app))
        self._call_of = functools.cache(lambda task: Call(app.tasks[task]))
        self._is_empty = not repair.given
        self._accepted = accepted_by(app)
        self._assignments = [_checked(parse_assignment(text)) for text in repair.assignments]
        functions = functions_of(app)
        self._function = functions.repair_named(repair.function) if repair.function else None
        self._calls, self._upgrades = Calls(app), functions.upgrades

    def repaired(self, letter: DeadLetter, now: datetime) -> Prepared:
        """``letter`` with its message changed. An error concerns this letter only.

        :raises FunctionHangs: functions of the user have hung too often.
        """
        before = OpenLetter(letter, self._accepted)
        if letter.unreadable:
            return Prepared(before, why_not=letter.unreadable)
        try:
            after = self._rewritten(before)
            if not self._is_empty:
                after = self._rerouted(after, now)
            return Prepared(after, "" if after is before else self._change(before, after))
        except RepairError as error:
            return Prepared(before, why_not=str(error))
        except FunctionHangs:
            raise
        except Exception as error:  # noqa: BLE001 - a function may return anything
            why_not = f"its changed message cannot be written ({reason(error)}); correct the change"
            return Prepared(before, why_not=why_not)

    def _rewritten(self, opened: OpenLetter) -> OpenLetter:
        """The letter with its new arguments and headers."""
        letter = opened.letter
        upgrades = self._due(task_of(letter), opened)
        if not (upgrades or self._assignments or self._function):
            return opened
        # Decoded apart from the original, because functions may change what they get.
        contents = contents_of(letter, self._accepted)
        for upgrade in upgrades:
            contents = self._calls.changed(upgrade.function, upgrade.named, contents)
        parameters = self._parameters_of(letter.task) if self._assignments else None
        for assignment in self._assignments:
            assignment.placed(parameters, contents).apply(contents)
        if self._function is not None:
            named = f"repair {self._repair.function!r}"
            contents = self._calls.changed(self._function, named, contents)
        return with_contents(opened, contents)

    def _due(self, task: str, opened: OpenLetter) -> Sequence[Upgrade]:
        """The upgrades that a message needs. Where its release is not known to be earlier, as for one that
        was sent by an old producer, the arguments decide."""
        registered = self._upgrades.get(task, ())
        later = [one for one in registered if one.is_for(opened.letter.message_release)]
        return later if later or not registered or self._fits(task, opened) else registered

    def _fits(self, task: str, opened: OpenLetter) -> bool:
        if task not in self._app.tasks:
            return True  # what it takes is unknown
        try:
            self._call_of(task).bind(opened.payload.args, opened.payload.kwargs)
        except TypeError:
            return False
        return True

    def _rerouted(self, opened: OpenLetter, now: datetime) -> OpenLetter:
        """The letter with its new task, queue, time and priority."""
        repair, envelope = self._repair, opened.letter.envelope
        if repair.to_task:
            envelope = _for_task(opened, repair.to_task)
        if repair.to_queue:
            name = repair.to_queue
            envelope = replace(envelope, queue=name, exchange="", routing_key=name)
        if repair.priority is not None:
            properties = {**envelope.properties, "priority": repair.priority}
            envelope = replace(envelope, properties=properties)
        return opened.with_(
            task=repair.to_task or opened.letter.task,
            envelope=envelope,
            due_at=_due(repair, envelope, now),
        )

    def _change(self, before: OpenLetter, after: OpenLetter) -> str:
        is_rewritten = before.letter.envelope.body != after.letter.envelope.body
        return describe(_shown(before, is_rewritten), _shown(after, is_rewritten), self._redactor)


@dataclass(frozen=True)
class Preparation:
    """The repairs and checks of one redrive."""

    repairs: Repairs
    checks: Checks
    #: The letters that a second person has approved, by task id; None if no one has.
    approved: Mapping[str, str] | None

    def prepare(self, letter: DeadLetter, now: datetime) -> Prepared:
        """``letter`` as it would be sent. An error in it is its ``why_not``.

        :raises RedriveError: the result backend does not answer, or functions of the user have hung too
            often.
        """
        made = self.repairs.repaired(letter, now)
        if made.why_not is not None:
            return made
        why_not, doubt, members = self.checks.check(made.opened, now, letter.task)
        return made._replace(why_not=why_not, doubt=doubt, members=members)


def preparation_of(
    context: RedriveContext, orders: Orders, operation: str | None = None
) -> Preparation:
    """The preparation of one redrive.

    :param operation: the id of its operation; None for a plan, which is made before an approval.
    :raises RepairError: the changes that were ordered cannot be made here.
    """
    repairs = Repairs(context.app, orders.repair, context.redactor)
    approved = context.store.requests.approved(operation) if operation else {}
    checks = Checks(context.app, orders, context.settings.redrive_queues, approved is not None)
    return Preparation(repairs, checks, approved)


def upgraded(app: Any, letter: DeadLetter) -> DeadLetter:
    """``letter`` with the message of the release that runs, for an editor. If an upgrade fails, the letter
    stays as it is: an edit may be the only way to repair the message."""
    return Repairs(app, Repair(), Redactor()).repaired(letter, letter.last_failed_at).letter


def _for_task(opened: OpenLetter, task: str) -> Envelope:
    envelope = opened.letter.envelope
    if "task" in envelope.headers:
        return replace(envelope, headers={**envelope.headers, "task": task})
    payload = opened.payload
    if not payload.is_first_protocol:
        raise RepairError("it names no task that another one could be run for; discard it")
    return write_payload(payload._replace(rest={**payload.rest, "task": task}), envelope)


def _shown(opened: OpenLetter, is_rewritten: bool) -> dict[str, Any]:
    """The parts of the message that a diff shows. The body is read only if it has changed."""
    letter, envelope = opened.letter, opened.letter.envelope
    contents: dict[str, Any] = {}
    if is_rewritten:
        contents = {"args": opened.payload.args, "kwargs": opened.payload.kwargs}
    headers = {name: value for name, value in envelope.headers.items() if name != "task"}
    queue = envelope.queue or envelope.exchange
    routed: dict[str, Any] = {"task": letter.task, "queue": queue}
    if "priority" in envelope.properties:
        routed["priority"] = envelope.properties["priority"]
    if letter.due_at is not None:
        routed["eta"] = letter.due_at.isoformat()
    return {**contents, "headers": headers, **routed}


def _checked(assignment: Assignment) -> Assignment:
    why = why_not_set(assignment.steps[0]) if assignment.root == "headers" else None
    if why:
        raise RepairError(f"--set {assignment.text}: {why}")
    return assignment


def _due(repair: Repair, envelope: Envelope, now: datetime) -> datetime | None:
    due = repair.eta
    if repair.countdown_s is not None:
        due = now + timedelta(seconds=repair.countdown_s)
    if due is not None and "task" not in envelope.headers:
        raise RepairError(
            "its message protocol is Celery's first, which cannot carry an eta; redrive it without one"
        )
    return due
