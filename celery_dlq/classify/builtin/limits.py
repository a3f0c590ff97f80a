"""Limits that say when they end: ratelimit, and Django REST framework."""

from __future__ import annotations

from celery_dlq.classify.evidence import number, read
from celery_dlq.classify.table import Finding
from celery_dlq.model.states import Verdict

_LONGEST_S = 86_400.0


def call_limit(exc: BaseException) -> Finding:
    """ratelimit's ``RateLimitException``: ``period_remaining`` are the seconds until the next call."""
    left = read(exc, "period_remaining")
    known = (type(left) is float or type(left) is int) and 0 <= left <= _LONGEST_S
    wait = float(left) if known else None
    return Finding(
        Verdict.TRANSIENT, "limit.calls", "type=RateLimitException", wait, throttled=True
    )


def throttled(exc: BaseException) -> Finding:
    """rest_framework/exceptions.py: ``wait`` is a number of seconds, or None."""
    wait = number(read(exc, "wait"))
    seconds = float(wait) if wait is not None and wait >= 0 else None
    return Finding(Verdict.TRANSIENT, "drf.throttled", f"wait={wait}", seconds, throttled=True)
