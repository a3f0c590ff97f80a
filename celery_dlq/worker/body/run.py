"""The run of a body, as the body itself sees it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, ClassVar

from celery.app.task import Context

from celery_dlq.errors import NoMessage
from celery_dlq.model.headers import (
    as_id,
    attempt_number,
    first_failure_of,
    letter_of,
    redrive_of,
)
from celery_dlq.worker.failure import read_attempts

#: The namespace of all keys. Services remember keys, so it never changes.
_NAMESPACE = uuid.UUID("6a8a0f63-84bc-4ebe-927c-328938071f19")


@dataclass(frozen=True)
class Run:
    """One run of a task's body: ``self.request.dlq``, or ``self.dlq``, in a task with ``bind=True``."""

    #: The name of the task.
    task: str
    #: The id of the message; None in a direct call, which has no message.
    task_id: str | None
    #: Which redrive of the message runs; 0 if it was not redriven.
    redrive: int
    #: The number of the attempt, 1 for the first; each redrive begins with 1 again.
    attempt: int
    #: When the message failed first, in UTC, before its redrives, too; None if it has not failed.
    first_failed_at: datetime | None
    #: The id of the letter that was sent back; None if the message was not redriven.
    letter: str | None = None

    @classmethod
    def of(cls, task: str, request: Context) -> Run:
        """The run of ``request``, a task's."""
        headers, task_id = request.headers, as_id(request.id)
        redrive, attempts = redrive_of(headers), read_attempts(headers)
        return cls(
            task=task,
            task_id=task_id,
            redrive=redrive,
            attempt=attempt_number(vars(request)),
            first_failed_at=first_failure_of(headers)
            or (attempts[0].failed_at if attempts else None),
            letter=letter_of(headers) or task_id if redrive else None,
        )

    @property
    def key(self) -> str:
        """A key for services and tables that do each thing once: a UUID of 36 characters, which is the same
        in all retries, redeliveries and redrives of a message. It does not depend on the arguments.

        :raises NoMessage: the run has no message.
        """
        if self.task_id is None:
            raise NoMessage(
                f"{self.task} runs without a message of its own, so this run has no key; "
                "send it with delay(), or in a test call it with apply()."
            )
        return str(uuid.uuid5(_NAMESPACE, f"{self.task}\0{self.task_id}"))


class RunContext(Context):  # type: ignore[misc]
    """A task's request that knows its run. A request becomes one when the body asks for it, so that the
    others pay nothing."""

    #: The name of the task. Not of the instance, whose attributes count as headers of the message.
    _dlq_task: ClassVar[str]

    @property
    def dlq(self) -> Run:
        """The run of the body that asks; outside of a message's run, a first run without an id."""
        return Run.of(self._dlq_task, self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Context, (vars(self),)


@cache
def _contexts_of(task: str) -> type[RunContext]:
    return type("RunContext", (RunContext,), {"_dlq_task": task})


def as_run_context(request: Context, task: str) -> Context:
    """``request`` itself, of ``task``, as one that knows its run."""
    # Celery's tracer makes the requests of all tasks, of one class. Another class is the user's.
    if type(request) is Context:
        request.__class__ = _contexts_of(task)
    return request
