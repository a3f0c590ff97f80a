"""Chords on result backends that keep no counts, such as a database: a task of Celery's asks for the
members' results until all are in, sends the body, and is gone. So it is when it finds a failure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from celery import states

from celery_dlq.headers import chord_key
from celery_dlq.redrive.parts import Part, by_group, why_revoked


class PolledChords:
    """Makes members unready, and starts the asking anew where it has ended. Which members a chord had
    is known then only because a worker kept it (:mod:`celery_dlq.worker.chord_headers`)."""

    def __init__(self, app: Any) -> None:
        self._app, self._backend = app, app.backend

    def why_not_whole(self, part: Part, failed_at: datetime, now: datetime) -> str | None:
        """The reason why the chord would not complete with ``part`` sent again; None when it may."""
        if self._header(part.group_id) is not None:
            return why_revoked(self._backend, part)
        if self._has_failed(_id_of(part.body)):
            return (
                "its chord has failed, and no worker has kept which members it had; "
                "start the chord anew, and discard this"
            )
        if self._is_over(failed_at, now) and not self._has_failed(part.task_id):
            return (
                "the result backend has forgotten its chord (result_expires), which would not go on; "
                "start the chord anew, and discard this"
            )
        return None

    def _is_over(self, failed_at: datetime, now: datetime) -> bool:
        """Whether the backend may have forgotten what was in it then. Who forgets is a task of Celery's,
        which may be late, or never run."""
        expires = self._backend.prepare_expires(self._backend.expires, float)
        return bool(expires) and (now - failed_at).total_seconds() > expires

    def reopen(self, parts: Sequence[Part]) -> None:
        """Count ``parts`` as not being in. May be repeated."""
        for group_id, members in by_group(parts).items():
            for part in members:
                self._forget_failure(part.task_id)
            header = self._header(group_id)
            if header is not None:
                self._ask_anew(group_id, header, members[0].body)

    def _ask_anew(self, group_id: str, header: Any, body: Any) -> None:
        self._forget_failure(_id_of(body))
        self._backend.apply_chord((group_id, header.results), self._app.signature(dict(body)))
        # Last: killed before, the chord is asked about by two, and its body may be sent twice; the
        # other way round it would never be.
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
