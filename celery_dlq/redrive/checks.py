"""Whether a letter can be sent at all, asked before anything is sent."""

from __future__ import annotations

from typing import Any

from celery_dlq.letter import NO_TASK, DeadLetter


def why_not(app: Any, letter: DeadLetter) -> str | None:
    """The reason why ``letter`` must not be sent; None when it may."""
    if not letter.envelope.queue and not letter.envelope.exchange:
        return "the queue it came from is not known; discard it"
    return why_no_task(app, letter.task)


def why_no_task(app: Any, task: str) -> str | None:
    """The reason why no letter of ``task`` can be sent; None when they can."""
    if task in app.tasks or task == NO_TASK:
        # What names no task is sent as it is when its sender's or its readers' mistake is mended.
        return None
    return f"task {task} is not registered in this app; deploy or import it, or discard its letters"
