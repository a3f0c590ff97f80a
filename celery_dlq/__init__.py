"""A dead-letter queue for Celery: classified retries, a store that loses nothing, safe redrive."""

from celery_dlq.classify import Classifier, Decision, Rule, decide
from celery_dlq.errors import CeleryDLQError
from celery_dlq.letter import Attempt, DeadLetter
from celery_dlq.queue import DeadLetterQueue
from celery_dlq.settings import Settings
from celery_dlq.states import Reason, State, Verdict
from celery_dlq.store.base import Filter
from celery_dlq.worker.task import DLQTask

__all__ = [
    "Attempt",
    "CeleryDLQError",
    "Classifier",
    "DLQTask",
    "DeadLetter",
    "DeadLetterQueue",
    "Decision",
    "Filter",
    "Reason",
    "Rule",
    "Settings",
    "State",
    "Verdict",
    "decide",
]

__version__ = "0.1.0"
