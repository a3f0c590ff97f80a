"""Changes messages before they are sent. The letters keep their originals."""

from __future__ import annotations

import functools
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from celery_dlq.errors import FunctionHangs, RepairError
from celery_dlq.hiding import hide_assignment
from celery_dlq.model.assignment import Assignment, parse_assignment
from celery_dlq.model.letter import DeadLetter, Envelope
from celery_dlq.model.operation import Repair
from celery_dlq.redact import Redactor, clip
from celery_dlq.redrive.contents import (
    LINE,
    contents_of,
    describe,
    why_not_set,
    with_contents,
)
from celery_dlq.redrive.functions import Calls, functions_of
from celery_dlq.redrive.message import reason
from celery_dlq.redrive.payload import (
    accepted_by,
    parameters_of,
    read_payload,
    write_payload,
)
from celery_dlq.redrive.upgrades import Upgrades


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


class Repaired(NamedTuple):
    """A letter as it is to be sent."""

    letter: DeadLetter
    #: Lines of a diff; empty if nothing was changed.
    change: str = ""
    #: Why it must not be sent; None if it may be.
    why_not: str | None = None


class Repairs:
    """The changes of one redrive: upgrades, assignments, the repair that it names, and other routes, in this
    order.

    :raises RepairError: an assignment is wrong, or the app has no such repair.
    """

    def __init__(self, app: Any, repair: Repair, redactor: Redactor) -> None:
        self._repair, self._redactor = repair, redactor
        # A redrive has thousands of letters of one task.
        self._parameters_of = functools.cache(functools.partial(parameters_of, app))
        self._changes = repair.given
        self._accepted = accepted_by(app)
        self._assignments = [_checked(parse_assignment(text)) for text in repair.assignments]
        self._function = (
            functions_of(app).repair_named(repair.function) if repair.function else None
        )
        self._calls = Calls(app)
        self._upgrades = Upgrades(app, self._calls)

    def repaired(self, letter: DeadLetter, now: datetime) -> Repaired:
        """``letter`` with its message changed. An error concerns this letter only.

        :raises FunctionHangs: functions of the user have hung too often.
        """
        try:
            changed = self._upgrades.upgraded(letter)
            if self._changes:
                changed = self._rerouted(self._rewritten(changed), now)
            return Repaired(changed, "" if changed is letter else self._change(letter, changed))
        except RepairError as error:
            return Repaired(letter=letter, why_not=str(error))
        except FunctionHangs:
            raise
        except Exception as error:  # noqa: BLE001 - a function may return anything
            why_not = f"its changed message cannot be written ({reason(error)}); correct the change"
            return Repaired(letter=letter, why_not=why_not)

    def _rewritten(self, letter: DeadLetter) -> DeadLetter:
        """``letter`` with its new arguments and headers."""
        if not self._assignments and self._function is None:
            return letter
        contents = contents_of(letter, self._accepted)
        parameters = self._parameters_of(letter.task) if self._assignments else None
        for assignment in self._assignments:
            assignment.placed(parameters, contents).apply(contents)
        if self._function is not None:
            named = f"repair {self._repair.function!r}"
            contents = self._calls.changed(self._function, named, contents)
        return with_contents(letter, contents, self._accepted)

    def _rerouted(self, letter: DeadLetter, now: datetime) -> DeadLetter:
        """``letter`` with its new task, queue, time and priority."""
        repair, envelope = self._repair, letter.envelope
        if repair.to_task:
            envelope = self._for_task(envelope, repair.to_task)
        if repair.to_queue:
            name = repair.to_queue
            envelope = replace(envelope, queue=name, exchange="", routing_key=name)
        if repair.priority is not None:
            properties = {**envelope.properties, "priority": repair.priority}
            envelope = replace(envelope, properties=properties)
        return letter.with_(
            task=repair.to_task or letter.task,
            envelope=envelope,
            due_at=_due(repair, envelope, now),
        )

    def _for_task(self, envelope: Envelope, task: str) -> Envelope:
        if "task" in envelope.headers:
            return replace(envelope, headers={**envelope.headers, "task": task})
        payload = read_payload(envelope, self._accepted)
        if not payload.is_first_protocol:
            raise RepairError("it names no task that another one could be run for; discard it")
        return write_payload(payload._replace(rest={**payload.rest, "task": task}), envelope)

    def _change(self, before: DeadLetter, after: DeadLetter) -> str:
        is_rewritten = before.envelope.body != after.envelope.body
        return describe(
            self._shown(before, is_rewritten), self._shown(after, is_rewritten), self._redactor
        )

    def _shown(self, letter: DeadLetter, is_rewritten: bool) -> dict[str, Any]:
        """The parts of the message that a diff shows. The contents are read only if the body has changed."""
        envelope = letter.envelope
        contents = contents_of(letter, self._accepted) if is_rewritten else {}
        headers = {name: value for name, value in envelope.headers.items() if name != "task"}
        routed: dict[str, Any] = {"task": letter.task, "queue": envelope.queue or envelope.exchange}
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
