"""Reports about the flight recorder, and lost letters, for screens."""

from __future__ import annotations

from datetime import datetime, timedelta

from support.factories import attempt, letter

from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import Reason
from celery_dlq.model.worker import RecorderReport, ReportKind

TASK_LOST = "celery_dlq.errors.TaskLost"


def lost_letter(task_id: str, failed_at: datetime) -> DeadLetter:
    """The letter of a message that a killed worker was running."""
    died = attempt(failed_at=failed_at, exception_type=TASK_LOST)
    return letter(
        task_id, died, reason=Reason.LOST, exception_type=TASK_LOST, fingerprint="105710571057"
    )


def trouble(now: datetime, text: str = "") -> list[RecorderReport]:
    """A report of each kind; ``text`` replaces its names and its cause."""

    def report(kind: ReportKind, messages: int, minutes: float, why: str) -> RecorderReport:
        return RecorderReport(
            kind=kind, about=text or f"host-b-7-{kind.value}", worker=text or "celery@host-b",
            host=text or "host-b", messages=messages, since=now - timedelta(minutes=minutes),
            why=text or why,
        )  # fmt: skip

    return [
        report(ReportKind.STUCK, 0, 45, "PermissionError: 1.rec is not readable"),
        report(ReportKind.WAITING, 2, 5, "the broker may deliver them again"),
        report(ReportKind.UNCOVERED, 1_234, 30, "[Errno 28] No space left on device"),
    ]
