"""Decides what follows a failure that has been classified: another attempt, or the end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

from celery.app.task import Context

from celery_dlq.classify import Decision
from celery_dlq.model.states import Reason, Verdict
from celery_dlq.retry import Exhausted, Wait
from celery_dlq.worker.body.ending import Died
from celery_dlq.worker.body.outage import is_outage
from celery_dlq.worker.body.retrying import Judged, free_before, policy_for
from celery_dlq.worker.failure import read_attempts
from celery_dlq.worker.wiring import CapturedTask


@dataclass(frozen=True)
class Again(Judged):
    """Run again, after a wait."""

    delay_s: float = 0.0


def next_step(
    task: CapturedTask, exc: BaseException, request: Context, decision: Decision
) -> Again | Died:
    """What follows the run of ``request`` that ended in ``exc``."""
    if decision.verdict is Verdict.TERMINAL:
        return Died(exc, decision, Reason.TERMINAL)
    free = free_before(request, exc, restart=task._wiring.settings.restart_on_new_error)
    outage = is_outage(task, request)
    wait = _wait_after(task, request, decision, free, outage=outage)
    if isinstance(wait, Exhausted):
        return Died(exc, decision, Reason.EXHAUSTED, wait.why)
    # While the circuit is open, the retry does not run: it is parked before it reaches the pool.
    over = None if task._budget is None or outage else task._budget.spend()
    if over is not None:
        return Died(exc, decision, Reason.BUDGET, over.why)
    return Again(decision, free + wait.free, wait.delay_s)


def _wait_after(
    task: CapturedTask, request: Context, decision: Decision, free: int, *, outage: bool
) -> Wait | Exhausted:
    earlier, now = read_attempts(request.headers), datetime.now(timezone.utc)
    policy = policy_for(task, decision)
    # One attempt is a promise that the body runs at most once.
    uncounted = (decision.throttled or outage) and policy.max_attempts != 1
    return policy.after(
        request.retries + 1,
        failed_at=now,
        first_failed_at=earlier[0].failed_at if earlier else now,
        retry_after=decision.retry_after,
        uncounted=uncounted,
        free=free,
    )
