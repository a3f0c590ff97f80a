"""When a transient failure is tried again."""

from celery_dlq.retry.backoff import full_jitter
from celery_dlq.retry.policy import Exhausted, RetryPolicy, Wait

__all__ = ["Exhausted", "RetryPolicy", "Wait", "full_jitter"]
