"""For tests of the user's tasks: the fixtures of the pytest plugin ``pytest_celery_dlq`` are made of it."""

from celery_dlq.testing.dead_letters import DeadLetters
from celery_dlq.testing.embedded import in_a_thread

__all__ = ["DeadLetters", "in_a_thread"]
