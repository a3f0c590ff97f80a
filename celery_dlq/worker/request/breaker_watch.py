"""Reports failed runs to the circuit breaker. A success costs nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

from celery.exceptions import TimeLimitExceeded
from celery.utils.log import get_logger

from celery_dlq.classify import is_a
from celery_dlq.model.states import Verdict
from celery_dlq.worker.request.fate import is_internal
from celery_dlq.worker.run_end import RunEnd

logger = get_logger(__name__)


class Probe(NamedTuple):
    """The one message of an open circuit that runs."""

    #: Task and key of the circuit.
    name: tuple[str, str]
    token: str


def report_to_breaker(request: Any, end: RunEnd, exc: BaseException) -> None:
    """Report to the breaker, once, that the run of ``request`` failed: it was retried, or died of ``exc``.
    This comes before its letter is written, because other messages run in the meantime."""
    if request._dlq_reported or is_internal(request):
        return
    request._dlq_reported = True
    try:
        request.dlq.breaker.ended(request, _verdict(request, end, exc))
    except Exception:
        # The next steps write the letter, and acknowledge the message.
        logger.exception(
            "the end of %s[%s] was not reported to the breaker", request.name, request.id
        )


def _verdict(request: Any, end: RunEnd, exc: BaseException) -> Verdict | None:
    """The verdict of the failure; None if it says nothing about the services that the task needs."""
    if end.failure is not None:
        return end.failure.explanation.verdict
    if end.for_error:
        return Verdict.TRANSIENT
    if is_a(exc, TimeLimitExceeded):
        verdict: Verdict = request.dlq.app.classifier.decide(exc).verdict
        return verdict
    return None
