"""A dead-letter queue for Celery: classified retries, a store that loses nothing, safe redrive."""

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.classify import Classifier, Decision, Rule, Terminal, Transient, decide
from celery_dlq.errors import CeleryDLQError
from celery_dlq.model.fingerprint import FingerprintInput
from celery_dlq.model.group import Group, GroupFilter, GroupStatus, Mark
from celery_dlq.model.handling import Discard, Escalate, HandlerLetter, Leave, Redrive, Ticket
from celery_dlq.model.letter import Attempt, DeadLetter
from celery_dlq.model.operation import (
    Checking,
    Counts,
    Guard,
    OperationState,
    Orders,
    Pacing,
    Repair,
    Sending,
    SendingState,
)
from celery_dlq.model.request import Approval
from celery_dlq.model.route import Route
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.settings import Settings
from celery_dlq.store.base import Operation
from celery_dlq.store.filter import Filter
from celery_dlq.upkeep.automation.definition import (
    AutoRedrive,
    Limits,
    Requirements,
    Suspension,
    Timetable,
)
from celery_dlq.upkeep.retention import Keep, Retention
from celery_dlq.worker.body.run import Run
from celery_dlq.worker.task import DLQTask

__all__ = [
    "Approval", "Attempt", "AutoRedrive", "CeleryDLQError", "Checking", "Classifier", "Counts", "DLQTask",
    "DeadLetter", "DeadLetterQueue", "Decision", "Discard", "Escalate", "Filter", "FingerprintInput",
    "Group", "GroupFilter", "GroupStatus", "Guard", "HandlerLetter", "Keep", "Leave", "Limits", "Mark",
    "Operation", "OperationState", "Orders", "Pacing", "Reason", "Redrive", "Repair", "Requirements",
    "Retention", "Route", "Rule", "Run", "Sending", "SendingState", "Settings", "State", "Suspension",
    "Terminal", "Ticket", "Timetable", "Transient", "Verdict", "decide",
]  # fmt: skip

__version__ = "1.0.0"
