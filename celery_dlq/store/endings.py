"""What became of sent letters: written with the outcome or the renewed failure, or given up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, bindparam, func, or_, select, update
from sqlalchemy.engine import Connection

from celery_dlq.letter import DeadLetter, Outcome
from celery_dlq.operation import ENDED, SendingState
from celery_dlq.redact import clip
from celery_dlq.store import sendings, tables
from celery_dlq.store.merge import redrive_of
from celery_dlq.store.query import is_parked
from celery_dlq.store.rows import fit, stored_id, whole

operation, sending, parked = tables.operation, tables.sending, tables.parked


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a redrive of a letter ended."""

    task_id: str
    redrive: int
    state: SendingState
    why: str = ""
    fingerprint: str = ""
    ended_at: datetime

    @classmethod
    def of_success(cls, outcome: Outcome) -> Ending:
        """It succeeded."""
        return cls(
            task_id=stored_id(outcome.task_id),
            redrive=whole(outcome.redrive),
            state=SendingState.SUCCEEDED,
            ended_at=outcome.succeeded_at,
        )

    @classmethod
    def of_failure(cls, letter: DeadLetter) -> Ending:
        """It failed again, as ``letter`` says."""
        return cls(
            task_id=stored_id(letter.task_id),
            redrive=redrive_of(letter),
            state=SendingState.FAILED,
            why=clip(f"{letter.exception_type}: {letter.message}", sendings.WHY_LIMIT),
            fingerprint=letter.fingerprint,
            ended_at=letter.last_failed_at,
        )


def record(connection: Connection, endings: Iterable[Ending]) -> None:
    """Write how redrives ended; what is no redrive is left out."""
    ended = [item for item in endings if item.redrive > 0]
    ended.sort(key=lambda item: (item.task_id, item.redrive, item.ended_at))
    if ended:
        connection.execute(_END, [_parameters(item) for item in ended])


def expire(connection: Connection, *, sent_before: datetime, now: datetime) -> int:
    """Give up on outcomes that did not come in time."""
    sendings.rescue(connection, now)
    parks = select(1).where(is_parked(), parked.c.task_id == sending.c.task_id).exists()
    over = select(operation.c.id).where(operation.c.state.in_(sorted(_OVER)))
    sent_at = func.coalesce(sending.c.sent_at, sending.c.claimed_at)
    lost = and_(_in(SendingState.SENT), sent_at < sent_before, ~parks)
    left = and_(
        _in(SendingState.SENDING), sending.c.claimed_at < sent_before, sending.c.operation.in_(over)
    )
    unknown = {"state": SendingState.UNKNOWN.value, "why": "no outcome came", "ended_at": now}
    return sum(
        connection.execute(update(sending).where(given_up).values(unknown)).rowcount
        for given_up in (lost, left)
    )


_OVER = frozenset(state.value for state in ENDED)


def _in(*states: SendingState) -> ColumnElement[bool]:
    # SQLAlchemy takes no IN for many rows of parameters.
    return or_(*(sending.c.state == state.value for state in states))


_AWAITED = _in(SendingState.SENDING, SendingState.SENT, SendingState.UNKNOWN)
# Workers may report more than one end: the message was delivered twice, or its record was spooled.
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


def _parameters(ending: Ending) -> dict[str, object]:
    texts = fit(sending, {"why": ending.why, "fingerprint": ending.fingerprint})
    return {
        "of_task_id": ending.task_id,
        "of_redrive": ending.redrive,
        "new_state": ending.state.value,
        "new_why": texts["why"],
        "new_fingerprint": texts["fingerprint"],
        "at": ending.ended_at,
    }
