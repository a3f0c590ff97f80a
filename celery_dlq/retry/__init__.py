"""Decides when a transient failure is tried again, and when the messages of a task do not run.

Attempts, waits and counts enter; a wait, a refusal or a new state of a circuit leaves. The caller passes in
the clock, the time and the random numbers. This room knows neither Celery nor the store.
"""

from celery_dlq.retry.breaker import BreakerLimits
from celery_dlq.retry.policy import Exhausted, RetryBudget, RetryPolicy, Wait

__all__ = ["BreakerLimits", "Exhausted", "RetryBudget", "RetryPolicy", "Wait"]
