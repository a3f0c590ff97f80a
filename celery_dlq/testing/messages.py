"""Follows the messages of an app under test from their sending to their end, in all its processes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celery import signals, states

from celery_dlq.model.handling import is_of_user
from celery_dlq.worker.task import DLQTask

#: Ends after which a letter comes, if the task makes letters. A rejected message may run again instead, and
#: so may one whose process was killed: its run has no state.
_WITH_A_LETTER = (states.FAILURE, states.REJECTED, None)


@dataclass
class Sent:
    """A message, which may have been sent several times: once for each retry."""

    id: str
    task: str = ""
    queue: str = ""
    published: int = 0
    retries: int = 0
    ended: int = 0
    #: The end of its last run, as Celery names it; empty if no run has ended.
    state: str = ""
    awaits_letter: bool = False

    @property
    def may_run(self) -> bool:
        """Whether it waits or runs, or its letter is still to come."""
        return self.published > self.ended or self.awaits_letter

    def __str__(self) -> str:
        end = self.state.lower() or f"no run of it has ended; it is in the queue {self.queue}"
        return f"{self.task}[{self.id}]: {self.retries} retries; {end}"


class Messages:
    """The messages of an app. Each process adds lines to one file, and the test reads them.

    :param path: the file.
    """

    def __init__(self, app: Any, path: Path) -> None:
        self._app, self._path = app, path
        self._consumed = set(app.amqp.queues)
        self._by_id: dict[str, Sent] = {}
        self._position = 0

    def __iter__(self) -> Iterator[Sent]:
        self._path.touch()
        with self._path.open() as file:
            file.seek(self._position)
            # The last line may be incomplete.
            for line in iter(file.readline, ""):
                if line.endswith("\n"):
                    self._position += len(line.encode())
                    self._read(**json.loads(line))
        return iter(list(self._by_id.values()))

    def _read(self, id: str, ended: bool, **values: Any) -> None:
        sent = self._by_id.get(id)
        if sent is None and ended:
            return  # not a message of this test
        sent = self._by_id.setdefault(id, Sent(id))
        sent.published += not ended
        sent.ended += ended
        sent.retries += values.pop("is_retry", False)
        vars(sent).update(values)

    def _note(self, **values: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(values) + "\n")

    @contextlib.contextmanager
    def followed(self) -> Iterator[Messages]:
        """Follow the messages that this process sends or runs within this block, and the processes that it
        forks."""
        amqp = self._app.amqp
        # In the instance, which ends with the test.
        amqp.send_task_message = self._noted(amqp.send_task_message)
        signals.task_postrun.connect(self._has_run, weak=False)
        signals.task_revoked.connect(self._was_revoked, weak=False)
        try:
            yield self
        finally:
            signals.task_postrun.disconnect(self._has_run)
            signals.task_revoked.disconnect(self._was_revoked)

    def _noted(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def noted(producer: Any, name: str, message: Any, **options: Any) -> Any:
            queue = options.get("queue") or self._app.conf.task_default_queue
            self._is_sent(name, message.headers, str(getattr(queue, "name", queue)))
            return send(producer, name, message, **options)

        return noted

    def _is_sent(self, name: str, headers: dict[str, Any], queue: str) -> None:
        # No test waits for a retry. The letter still has the wait of each attempt.
        headers["eta"] = None
        is_retry = bool(headers.get("retries"))
        self._note(id=headers["id"], ended=False, task=name, queue=queue, is_retry=is_retry)
        if queue not in self._consumed:
            self._consumed.add(queue)
            # The settings do not name it, so the worker does not consume it yet.
            self._app.control.add_consumer(queue)

    def _has_run(self, task: Any, task_id: str, state: str | None, **_: Any) -> None:
        if task.app is self._app:
            makes_letters = isinstance(task, DLQTask) and is_of_user(str(task.name))
            awaits = makes_letters and state in _WITH_A_LETTER
            self._note(id=task_id, ended=True, state=state or "killed", awaits_letter=awaits)

    def _was_revoked(self, sender: Any, request: Any, **_: Any) -> None:
        if sender.app is self._app:
            self._note(id=request.id, ended=True, state=states.REVOKED, awaits_letter=False)
