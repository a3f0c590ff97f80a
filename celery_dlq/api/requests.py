"""The part of the Python API for acts that wait for a second person, who approves or refuses them."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from celery_dlq.errors import OperationError
from celery_dlq.model.request import Request, RequestState
from celery_dlq.redrive.letter.edit import make_edit, read_part
from celery_dlq.store.base import Edit, Filter
from celery_dlq.store.tenure import Tenure, kept

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
        if found.act == "delete":
            return approve(lambda ids: Filter(ids=tuple(ids), states=frozenset(found.states)))
        return approve(self._edit(found)) if found.act == "edit" else self._erase(found, approve)

    def _edit(self, found: Request) -> Begin:
        (task_id,) = found.letters
        letter = self._store.letters.get(task_id)
        changes = {name: read_part(name, text) for name, text in found.changes.items()}

        def begin(_ids: Sequence[str]) -> Edit:
            assert letter is not None, "it has not changed"  # noqa: S101
            return make_edit(
                self._queue.app, letter, changes, self._queue.redactor, who=found.who,
                why=found.why, at=self._store.now(),
            )  # fmt: skip

        return begin

    def _erase(self, found: Request, approve: Callable[[Begin], Request]) -> Request:
        """Approve an erasure, and carry it out, while no other process removes letters."""
        from celery_dlq.upkeep.expiring import LEASE

        tenure = Tenure(lambda: self._store, LEASE, f"request/{os.getpid()}/{uuid.uuid4().hex}")
        lease = tenure.prolong()
        if lease is None:
            raise OperationError("Another process removes letters now; approve it in a minute.")
        try:
            with kept(tenure, lease):
                approved = approve(lambda _ids: None)
                if approved.state is not RequestState.APPROVED:
                    return approved
                left_out = approved.result["left_out"]
                fresh = [one for one in approved.letters if one not in left_out]
                erasure = self._queue.approved_erasure(
                    fresh, found.changes["where"], found.changes["subject"]
                )
                done = erasure.carry_out(erasure.look(), lease, who=found.who, why=found.why)
                result = {"letters": done.stored + done.archived}
                return self._store.requests.end(found.id, result)
        finally:
            tenure.end()
