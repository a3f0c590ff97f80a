"""Watches a running operation of an automatic redrive, and ends it when its conditions no longer hold."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from celery_dlq.model.auto_redrive import EVERY, AutoState, AutoStatus
from celery_dlq.store.base import Operation
from celery_dlq.upkeep.auto_redrive.definition import AutoRedrive
from celery_dlq.upkeep.auto_redrive.requirements import open_circuits

if TYPE_CHECKING:
    from celery_dlq.store import Store


def why_stopped(statuses: dict[str, AutoStatus], name: str) -> str:
    """Why the automatic redrive ``name`` may not run: it, or all of them, were stopped. Empty if it may."""
    for key, subject in ((EVERY, "all automatic redrives are"), (name, "it is")):
        status = statuses.get(key)
        if status is not None and status.state is not AutoState.ACTIVE:
            why = f": {status.why}" if status.why else ""
            return f"{subject} {status.state.value} by {status.who}{why}"
    return ""


def why_not_now(store: Store, auto: AutoRedrive, operation: Operation, now: datetime) -> str:
    """Why ``auto`` may not send more of its running operation; empty if it may.

    :raises StoreError: the store failed.
    """
    closed = auto.when.why_closed(now)
    if closed or not auto.require.closed_circuit:
        return closed
    circuits = open_circuits(store)
    tasks = store.counts.by_task(operation.wanted) if circuits else ()
    return next((circuits[task] for task in tasks if task in circuits), "")
