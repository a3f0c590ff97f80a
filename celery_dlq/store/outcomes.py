"""Writing back that messages ran successfully."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, update
from sqlalchemy.engine import Connection

from celery_dlq.letter import Outcome
from celery_dlq.states import State
from celery_dlq.store import deliveries, endings, tables
from celery_dlq.store.endings import Ending
from celery_dlq.store.merge import resolves
from celery_dlq.store.rows import fit, stored_id
from celery_dlq.store.save import IS_LETTER, Stored, lock_stored
from celery_dlq.store.tally import Tally

letter = tables.letter


def record_batch(connection: Connection, outcomes: Sequence[Outcome]) -> list[str]:
    """Resolve the open letters that ``outcomes`` are about; returns their task ids."""
    stored = lock_stored(connection, (stored_id(item.task_id) for item in outcomes))
    tally = Tally()
    resolved: dict[str, dict[str, Any]] = {}
    # A batch may hold two successes of one letter: the later redrive is the one to be named.
    for outcome in sorted(outcomes, key=lambda item: (-item.redrive, item.succeeded_at)):
        key = stored_id(outcome.task_id)
        found = stored.get(key)
        if found is None or key in resolved or not resolves(found.facts, outcome):
            continue
        resolved[key] = _resolution(found, outcome)
        tally.succeed(found.member, redriven=outcome.redrive > 0)
    if resolved:
        connection.execute(_RESOLVE, [row for _, row in sorted(resolved.items())])
        tally.write(connection)
    endings.record(connection, map(Ending.of_success, outcomes))
    deliveries.forget_messages(connection, (stored_id(item.task_id) for item in outcomes))
    return sorted(resolved)


_RESOLVE = (
    update(letter)
    .where(IS_LETTER)
    .values(
        state=State.RESOLVED.value,
        redrive_count=bindparam("new_count"),
        claim_token=None,
        lease_expires_at=None,
        closed_at=bindparam("at"),
        closed_by=bindparam("by"),
        closed_reason=bindparam("why"),
    )
)


def _resolution(found: Stored, outcome: Outcome) -> dict[str, Any]:
    redrive = outcome.redrive
    why = f"redrive {redrive} succeeded" if redrive else "another copy of the message succeeded"
    closing = fit(letter, {"closed_by": f"worker {outcome.worker}", "closed_reason": why})
    return {
        "of_task_id": found.task_id,
        "new_count": max(found.facts.redrive_count, redrive),
        "at": outcome.succeeded_at,
        "by": closing["closed_by"],
        "why": closing["closed_reason"],
    }
