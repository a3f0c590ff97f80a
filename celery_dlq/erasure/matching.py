"""Finds the letters of a person by their messages: the current one, and those before each edit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from celery_dlq.erasure.condition import Condition, Parameters, UnknownParameters
from celery_dlq.errors import PayloadError
from celery_dlq.model.letter import DeadLetter, Envelope
from celery_dlq.redrive.payload import accepted_by, read_payload
from celery_dlq.store.archive.lines import Line, envelopes_of
from celery_dlq.store.rows.rows import stored_id


class Matcher:
    """Says which letters are meant: those with one of some task ids, or those whose messages meet all
    conditions.

    :param accepted: the content types that may be decoded.
    :param parameters: returns the parameters of a task, given its name.
    """

    def __init__(
        self,
        ids: Iterable[str],
        conditions: Sequence[Condition],
        *,
        accepted: frozenset[str],
        parameters: Callable[[str], Parameters],
    ) -> None:
        self._ids, self._conditions = frozenset(map(stored_id, ids)), conditions
        self._accepted, self._parameters = accepted, parameters
        #: Letters that could not be read, by task id, each with the reason.
        self.unread: dict[str, str] = {}

    @classmethod
    def for_app(cls, app: Any, ids: Iterable[str], conditions: Sequence[Condition]) -> Matcher:
        """A matcher that reads what the workers of ``app`` read, and knows its tasks."""
        return cls(
            ids,
            conditions,
            accepted=accepted_by(app),
            parameters=lambda name: parameters_of(app, name),
        )

    def is_line(self, line: Line) -> bool:
        """Whether the letter of a line is meant."""
        letter = line["letter"]
        return self._is_meant(letter["task_id"], letter["task"], envelopes_of(line))

    def is_letter(self, letter: DeadLetter) -> bool:
        """Whether ``letter`` is meant."""
        return self._is_meant(letter.task_id, letter.task, [letter.envelope])

    def _is_meant(self, task_id: str, task: str, messages: Iterable[Envelope]) -> bool:
        if not self._conditions:
            return stored_id(task_id) in self._ids
        try:
            return any(self._meets_all(task, message) for message in messages)
        except UnknownParameters:
            self.unread[task_id] = (
                f"the app does not have its task {task}, so the names of its arguments are unknown"
            )
        except PayloadError as error:
            self.unread[task_id] = str(error)
        return False

    def _meets_all(self, task: str, message: Envelope) -> bool:
        payload = read_payload(message, self._accepted)
        parts = {"args": payload.args, "kwargs": payload.kwargs, "headers": message.headers}
        named = message.headers.get("task")
        parameters = self._parameters(named if isinstance(named, str) else task)
        return all(condition.holds(parts, parameters) for condition in self._conditions)


def parameters_of(app: Any, name: str) -> Parameters:
    """The positional parameters of a task of ``app``; None if the app does not have it."""
    task = app.tasks.get(name)
    if task is None:
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        found = inspect.signature(task.run).parameters.values()
    except (TypeError, ValueError):  # a callable that does not say what it takes
        return None
    return [one.name for one in found if one.kind in positional]
