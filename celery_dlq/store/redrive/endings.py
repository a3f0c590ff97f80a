"""Writes how redrives ended, together with the success or with the next failure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from operator import itemgetter
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, or_, update
from sqlalchemy.engine import Connection

from celery_dlq.base.redact import clip
from celery_dlq.model.letter import DeadLetter, Outcome
from celery_dlq.model.operation import SendingState
from celery_dlq.store.database.tables import sending
from celery_dlq.store.redrive import send_log
from celery_dlq.store.rows.merge import redrive_of
from celery_dlq.store.rows.rows import fit_text, stored_id, whole


def record_successes(connection: Connection, outcomes: Iterable[Outcome]) -> None:
    """Write that the redrives of ``outcomes`` succeeded; first deliveries are left out."""
    succeeded = [
        _ending(
            SendingState.SUCCEEDED,
            outcome.task_id,
            whole(outcome.redrive),
            ended_at=outcome.succeeded_at,
            why=f"succeeded in release {outcome.release}" if outcome.release else "",
        )
        for outcome in outcomes
        if outcome.redrive > 0
    ]
    _record(connection, succeeded)


def record_failures(connection: Connection, letters: Iterable[DeadLetter]) -> None:
    """Write that the redrives of ``letters`` failed again, and how; first deliveries are left out."""
    failed = [
        _ending(
            SendingState.FAILED,
            letter.task_id,
            redrive_of(letter),
            ended_at=letter.last_failed_at,
            why=clip(f"{letter.exception_type}: {letter.message}", send_log.WHY_LIMIT),
            fingerprint=letter.fingerprint,
        )
        for letter in letters
        if redrive_of(letter) > 0
    ]
    _record(connection, failed)


def _ending(
    state: SendingState,
    task_id: str,
    redrive: int,
    *,
    ended_at: datetime,
    why: str = "",
    fingerprint: str = "",
) -> dict[str, Any]:
    return {
        "of_task_id": stored_id(task_id),
        "of_redrive": redrive,
        "new_state": state.value,
        "new_why": fit_text(sending.c.why, why),
        "new_fingerprint": fit_text(sending.c.fingerprint, fingerprint),
        "at": ended_at,
    }


def _record(connection: Connection, endings: list[dict[str, Any]]) -> None:
    if endings:
        in_order = sorted(endings, key=itemgetter("of_task_id", "of_redrive", "at"))
        connection.execute(_END, in_order)


def _in(*states: SendingState) -> ColumnElement[bool]:
    # SQLAlchemy does not accept IN for many rows of parameters.
    return or_(*(sending.c.state == state.value for state in states))


_AWAITED = _in(SendingState.SENDING, SendingState.SENT, SendingState.UNKNOWN)
# Workers may report two ends: the message was delivered twice, or a record of it was spooled.
_EARLIER = and_(
    _in(SendingState.SUCCEEDED, SendingState.FAILED), sending.c.ended_at < bindparam("at")
)

_END = (
    update(sending)
    .where(
        sending.c.task_id == bindparam("of_task_id"),
        sending.c.redrive == bindparam("of_redrive"),
        or_(_AWAITED, _EARLIER),
    )
    .values(
        state=bindparam("new_state"),
        why=bindparam("new_why"),
        fingerprint=bindparam("new_fingerprint"),
        ended_at=bindparam("at"),
    )
)
