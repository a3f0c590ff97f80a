"""The part of the Python API for redrives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from celery_dlq.api.parts import AppParts
from celery_dlq.errors import MessageChanged, UnknownLetter
from celery_dlq.worker.task import DLQTask

if TYPE_CHECKING:
    from celery_dlq.redrive.context import RedriveContext
    from celery_dlq.redrive.operation import Operations


class RedriveAPI(AppParts):
    """The methods of a dead-letter queue for redrives."""

    @cached_property
    def redrives(self) -> Operations:
        """Plans, starts and stops redrives."""
        from celery_dlq.redrive.operation import Operations

        return Operations(self.redrive_context)

    @cached_property
    def redrive_context(self) -> RedriveContext:
        """The app as its redrives see it."""
        from celery_dlq.redrive.context import Clock, RedriveContext

        # A letter is sent only if its task is registered in this app.
        self.app.loader.import_default_modules()
        return RedriveContext(
            app=self.app, store=self.store, settings=self.settings,
            redactor=self.redactor, reports=self._reports, clock=Clock(now=self.store.now),
        )  # fmt: skip

    def _reports(self, task: str) -> bool:
        """Whether workers report the outcomes of the messages of ``task``."""
        return isinstance(self.app.tasks.get(task), DLQTask)

    def edit(
        self,
        task_id: str,
        *,
        who: str,
        why: str = "",
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        headers: Mapping[str, Any] | None = None,
        seen: str | None = None,
    ) -> str:
        """Change the message of a dead letter, which a redrive then sends; the earlier message stays in
        the letter's history. Parts that are None do not change. Returns the change as lines of a diff,
        with secrets hidden.

        :param why: for the audit.
        :param seen: the ``digest_of()`` of the message that was looked at; None for any message.
        :raises UnknownLetter: no letter has this id.
        :raises MessageChanged: the letter has another message by now.
        :raises RepairError: it is not dead, or it cannot be changed like this.
        """
        from celery_dlq.redrive.letter.edit import digest_of, make_edit

        letter = self.store.letters.get(task_id)
        if letter is None:
            raise UnknownLetter
        if seen is not None and seen != digest_of(letter.envelope):
            raise MessageChanged
        given = {"args": args, "kwargs": kwargs, "headers": headers}
        changes = {name: value for name, value in given.items() if value is not None}
        now = self.store.now()
        edit = make_edit(self.app, letter, changes, self.redactor, who=who, why=why, at=now)
        if not self.store.edits.save(edit):
            raise MessageChanged
        return edit.diff
