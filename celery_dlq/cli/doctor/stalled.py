"""The doctor's question to the workers whether they receive messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery_dlq.cli.doctor.finding import BROKER_TIMEOUT_S, Finding, Findings, Level
from celery_dlq.cli.session import Session
from celery_dlq.view.text import counted

#: Seconds to wait for the answers of workers.
_ANSWERS_S = 1.0


def check_stalled(session: Session) -> Findings:
    """A warning for each worker that is stalled and answers. One whose whole connection is dead cannot
    answer."""
    answers = _statistics(session.cli.app)
    stalls = {node: _stall_of(answers[node]) for node in sorted(answers)}
    for node, stall in stalls.items():
        if stall:
            queues = ", ".join(stall.get("queues", ()))
            yield Finding(
                Level.WARNING,
                f"{node} has received nothing since {stall.get('since')}, although it has free slots and "
                f"messages wait in {queues}; restart it, and see: celery -A <app> dlq help stalled-workers",
            )
    if stalls and not any(stalls.values()):
        yield Finding(Level.OK, f"{counted(len(stalls), 'worker')}, none stalled")


def _statistics(app: Any) -> Mapping[str, Any]:
    """What each worker says of itself."""
    with app.connection_for_write(connect_timeout=BROKER_TIMEOUT_S) as connection:
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=BROKER_TIMEOUT_S)
        control = app.control.inspect(timeout=_ANSWERS_S, connection=connection)
        found: Mapping[str, Any] = control.stats() or {}
    return found


def _stall_of(statistics: Any) -> Mapping[str, Any]:
    own = (statistics or {}).get("dlq") or {}
    found: Mapping[str, Any] = own.get("stalled") or {}
    return found
