"""Changes messages before they are sent. The letters keep their originals."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from celery.utils.imports import import_from_cwd

from celery_dlq.errors import RepairError
from celery_dlq.hiding import hide_assignment
from celery_dlq.model.assignment import Assignment, parse_assignment
from celery_dlq.model.letter import DeadLetter, Envelope
from celery_dlq.model.operation import Repair
from celery_dlq.redact import Redactor, clip, safe_message
from celery_dlq.redrive.contents import (
    LINE,
    Contents,
    contents_of,
    describe,
    why_not_set,
    with_contents,
)
from celery_dlq.redrive.payload import (
    accepted_by,
    parameters_of,
    read_payload,
    write_payload,
)

#: Gets copies of args, kwargs and headers, and returns new ones, or None to leave the letter out.
Transform = Callable[[list[Any], dict[str, Any], dict[str, Any]], Any]


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
    """The changes of one redrive.

    :raises RepairError: an assignment is wrong, or the transform cannot be imported.
    """

    def __init__(self, app: Any, repair: Repair, redactor: Redactor) -> None:
        self._repair, self._redactor = repair, redactor
        # A redrive has thousands of letters of one task.
        self._parameters_of = functools.cache(functools.partial(parameters_of, app))
        self._changes = repair.given
        self._accepted = accepted_by(app)
        self._assignments = [_checked(parse_assignment(text)) for text in repair.assignments]
        self._transform = import_transform(repair.transform) if repair.transform else None

    def repaired(self, letter: DeadLetter, now: datetime) -> Repaired:
        """``letter`` with its message changed. An error concerns this letter only."""
        if not self._changes:
            return Repaired(letter)
        try:
            rewritten = self._rewritten(letter)
            if rewritten is None:
                return Repaired(letter=letter, why_not=f"{self._repair.transform} left it out")
            changed = self._rerouted(rewritten, now)
        except RepairError as error:
            return Repaired(letter=letter, why_not=str(error))
        return Repaired(letter=changed, change=self._change(letter, changed))

    def _rewritten(self, letter: DeadLetter) -> DeadLetter | None:
        """``letter`` with its new arguments and headers; None if the transform leaves it out."""
        if not self._assignments and self._transform is None:
            return letter
        contents = contents_of(letter, self._accepted)
        parameters = self._parameters_of(letter.task) if self._assignments else None
        for assignment in self._assignments:
            assignment.placed(parameters, contents).apply(contents)
        if self._transform is None:
            return with_contents(letter, contents, self._accepted)
        returned = _called(self._transform, str(self._repair.transform), contents)
        return None if returned is None else with_contents(letter, returned, self._accepted)

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


def import_transform(name: str) -> Transform:
    """The function that ``name`` (``module:function``) names.

    :raises RepairError: it cannot be imported, or is not a function that can be called.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise RepairError(f"--transform {name}: write it like shop.repairs:in_euros")
    try:
        found: Any = import_from_cwd(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        raise RepairError(
            f"--transform {name} cannot be imported: {type(error).__name__}: {safe_message(error)}"
        ) from error
    if not callable(found) or inspect.iscoroutinefunction(found):
        raise RepairError(
            f"--transform {name} is not a function that can be called; write it with def"
        )
    return found  # type: ignore[no-any-return]


def _called(transform: Transform, name: str, contents: Contents) -> Contents | None:
    try:
        returned = transform(contents["args"], contents["kwargs"], contents["headers"])
    except (Exception, SystemExit) as error:
        raise RepairError(f"{name} raised {type(error).__name__}: {safe_message(error)}") from error
    if returned is None:
        return None
    if not isinstance(returned, (tuple, list)) or len(returned) != 3:
        raise RepairError(f"{name} must return args, kwargs and headers, or None to leave it out")
    return dict(zip(("args", "kwargs", "headers"), returned, strict=True))


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
