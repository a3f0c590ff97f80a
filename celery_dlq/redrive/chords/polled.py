"""Chords on result backends that keep no counts, such as a database. Celery's ``chord_unlock`` task polls the
members' results until all are in, and then sends the body. It ends when it finds a failure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from celery import states

from celery_dlq.model.headers import chord_key
from celery_dlq.redrive.chords.members import ChordMember, why_revoked


class PolledChords:
    """Forgets the failures of members, and starts the polling again if it has ended. By then, the members of
    the chord are known only because a worker kept its header
    (:mod:`celery_dlq.worker.celery_quirks.chord_headers`)."""

    def __init__(self, app: Any) -> None:
        self._app, self._backend = app, app.backend

    def why_not_whole(self, member: ChordMember, failed_at: datetime, now: datetime) -> str | None:
        """Why the chord would not complete if ``member`` were sent again; None if it would complete."""
        if self._header(member.group_id) is not None:
            return why_revoked(self._backend, member)
        if self._has_failed(_id_of(member.body)):
            return (
                "its chord has failed, and no worker has kept which members it had; "
                "start the chord again, and discard this letter"
            )
        if self._is_over(failed_at, now) and not self._has_failed(member.task_id):
            return (
                "the result backend has forgotten its chord (result_expires), so its body would never run; "
                "start the chord again, and discard this letter"
            )
        return None

    def _is_over(self, failed_at: datetime, now: datetime) -> bool:
        """Whether the results of ``failed_at`` may have expired. Celery's ``backend_cleanup`` task deletes
        them; it may run late, or never."""
        expires = self._backend.prepare_expires(self._backend.expires, float)
        return bool(expires) and (now - failed_at).total_seconds() > expires

    def reopen(self, group_id: str, members: Sequence[ChordMember]) -> None:
        """Forget the failures of ``members`` of the chord, as if they had not reported. Idempotent."""
        for member in members:
            self._forget_failure(member.task_id)
        header = self._header(group_id)
        if header is not None:
            self._poll_again(group_id, header, members[0].body)

    def _poll_again(self, group_id: str, header: Any, body: Any) -> None:
        self._forget_failure(_id_of(body))
        self._backend.apply_chord((group_id, header.results), self._app.signature(dict(body)))
        # Deleted last: if the process is killed before it, two tasks poll the chord and its body may be sent
        # twice. In the other order the body would never be sent.
        self._backend.delete_group(chord_key(group_id))

    def _header(self, group_id: str) -> Any:
        return self._backend.restore_group(chord_key(group_id), cache=False)

    def _has_failed(self, task_id: str | None) -> bool:
        if task_id is None:
            return False
        meta = self._backend.get_task_meta(task_id, cache=False)
        return meta["status"] in states.PROPAGATE_STATES

    def _forget_failure(self, task_id: str | None) -> None:
        if task_id is not None and self._has_failed(task_id):
            self._backend.forget(task_id)


def _id_of(body: Any) -> str | None:
    task_id = (body.get("options") or {}).get("task_id")
    return None if task_id is None else str(task_id)
