"""The part of the Python API for acts that wait for a second person, who approves or refuses them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.request import Request, RequestState
from celery_dlq.redrive.letter.edit import make_edit, read_part
from celery_dlq.store.base import Edit

if TYPE_CHECKING:
    from celery_dlq.api.queue import DeadLetterQueue
    from celery_dlq.store.requests import Begin


class Requests:
    """Approves and refuses requests.

    :param queue: the app's dead-letter queue.
    """

    def __init__(self, queue: DeadLetterQueue) -> None:
        self._queue, self._store = queue, queue.store

    def refuse(self, request_id: str, *, who: str, why: str = "") -> Request:
        """Refuse a request that waits, or withdraw your own.

        :raises UnknownRequest: no request has this id.
        :raises RequestRefused: it does not wait any more.
        """
        return self._store.requests.answer(request_id, None, who=who, why=why)

    def approve(self, request_id: str, *, who: str, why: str = "") -> Request:
        """Approve a request. If it needs no further approval, its act is carried out for the letters that
        have not changed since it was made; a worker runs a redrive.

        :param who: a :class:`~celery_dlq.model.request.Login`; another name approves nothing.
        :raises UnknownRequest: no request has this id.
        :raises RequestRefused: ``who`` may not approve it, or it does not wait any more.
        :raises CeleryDLQError: the act cannot be carried out; unless the audit has the approval, nothing was
            changed.
        """
        found = self._store.requests.get(request_id)
        approve = partial(self._store.requests.answer, request_id, who=who, why=why)
        if found.act == "redrive":
            return approve(partial(self._queue.redrives.approved, found))
        if found.act == "edit":
            letter = self._store.letters.get(*found.letters)
            return approve(partial(self._edit, found, letter))
        return approve(lambda _ids: None) if found.act == "delete" else self._erase(found, approve)

    def _edit(self, found: Request, letter: DeadLetter | None, _ids: Sequence[str]) -> Edit:
        assert letter is not None, "it has not changed"  # noqa: S101
        changes = {name: read_part(name, text) for name, text in found.changes.items()}
        app, redactor, now = self._queue.app, self._queue.redactor, self._store.now()
        return make_edit(app, letter, changes, redactor, who=found.who, why=found.why, at=now)

    def _erase(self, found: Request, approve: Callable[[Begin], Request]) -> Request:
        """Approve an erasure, and carry it out, while no other process removes letters."""
        from celery_dlq.upkeep.expiring import removing

        with removing(self._store, "request") as (lease, _):
            approved = approve(lambda _ids: None)
            if approved.state is not RequestState.DONE:
                return approved
            self._queue.app.loader.import_default_modules()
            left_out, subject = approved.result["left_out"], found.changes["subject"]
            # A person's key also stands for letters in the archive, which have no ids here.
            ids = () if subject else [one for one in approved.letters if one not in left_out]
            erasing = self._queue.erasure(ids=ids, where=found.changes["where"], subject=subject)
            look, who, why = erasing.look(), found.who, found.why
            erasing.carry_out(look, lease, who=who, why=why, is_approved=True)
            return approved
