"""Upgrades letters: brings the arguments of messages of earlier releases to those that the task takes now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from celery_dlq.errors import RepairError
from celery_dlq.model.letter import DeadLetter
from celery_dlq.redrive.checks import Call
from celery_dlq.redrive.contents import Contents, contents_of, with_contents
from celery_dlq.redrive.functions import Calls, Upgrade, functions_of
from celery_dlq.redrive.payload import accepted_by, task_of


class Upgrades:
    """The upgrades of an app.

    :param calls: makes the calls.
    """

    def __init__(self, app: Any, calls: Calls) -> None:
        self._app, self._calls = app, calls
        self._of_task, self._accepted = functions_of(app).upgrades, accepted_by(app)
        self._tasks: dict[str, Call] = {}

    def upgraded(self, letter: DeadLetter) -> DeadLetter:
        """``letter`` with the message that it would have in the release that runs.

        :raises RepairError: an upgrade fails.
        """
        task = task_of(letter)
        if task not in self._of_task:
            return letter
        contents = contents_of(letter, self._accepted)
        for upgrade in self._due(task, letter.message_release, contents):
            contents = self._calls.changed(upgrade.function, upgrade.named, contents)
            letter = with_contents(letter, contents, self._accepted)
            contents = contents_of(letter, self._accepted)
        return letter

    def _due(self, task: str, release: str, contents: Contents) -> Sequence[Upgrade]:
        """The upgrades that a message needs. Where its release is not known to be earlier, as for one that
        was sent by an old producer, the arguments decide."""
        registered = self._of_task[task]
        later = [one for one in registered if one.is_for(release)]
        return later if later or self._fits(task, contents) else registered

    def _fits(self, task: str, contents: Contents) -> bool:
        if task not in self._app.tasks:
            return True  # what it takes is unknown
        if task not in self._tasks:
            self._tasks[task] = Call(self._app.tasks[task])
        try:
            self._tasks[task].bind(contents["args"], contents["kwargs"])
        except TypeError:
            return False
        return True


def upgraded(app: Any, letter: DeadLetter) -> DeadLetter:
    """``letter`` with the message that it would have in the release that runs, for one who edits it. If an
    upgrade fails, it is the letter itself: an edit may be the only way to repair it."""
    try:
        return Upgrades(app, Calls(app)).upgraded(letter)
    except RepairError:
        return letter
