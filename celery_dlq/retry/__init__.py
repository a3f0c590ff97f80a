"""When a transient failure is tried again, and when nothing of its task runs."""

from celery_dlq.retry.backoff import full_jitter
from celery_dlq.retry.breaker import BreakerLimits
from celery_dlq.retry.budget import OverBudget, RetryBudget
from celery_dlq.retry.policy import Exhausted, RetryPolicy, Wait

__all__ = [
    "BreakerLimits",
    "Exhausted",
    "OverBudget",
    "RetryBudget",
    "RetryPolicy",
    "Wait",
    "full_jitter",
]
