"""The doctor's look at the step in which a message passes from Redis to a worker."""

from __future__ import annotations

from celery_dlq.cli.doctor.finding import BROKER_TIMEOUT_S, Finding, Findings, Level, driver_of
from celery_dlq.cli.session import Session
from celery_dlq.worker.celery_quirks.redis_take import why_not


def check_taking(session: Session) -> Findings:
    """Whether a worker that is killed can lose the message that it is taking from Redis."""
    if driver_of(session.cli.app) != "redis":
        return
    if not session.queue.settings.redis_atomic_take:
        yield Finding(
            Level.WARNING,
            "a worker that is killed loses the message that Redis is giving to it at that moment; on Redis "
            "6.2 or newer, set dlq_redis_atomic_take to True",
        )
        return
    refused = _why_not(session)
    if refused is None:
        return
    if refused:
        yield Finding(Level.ERROR, f"workers cannot take messages in one step: {refused}")
    else:
        yield Finding(Level.OK, "workers take messages from Redis, and note them, in one step")


def _why_not(session: Session) -> str | None:
    """None if the broker does not answer, which another check reports."""
    app = session.cli.app
    with app.connection_for_read(connect_timeout=BROKER_TIMEOUT_S) as connection:
        try:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=BROKER_TIMEOUT_S)
        except Exception:  # noqa: BLE001 - each transport has its own errors
            return None
        return why_not(connection.default_channel, app.conf.task_default_queue)
