"""Whether a letter can be sent at all, asked before anything is sent."""

from __future__ import annotations

from typing import Any

from celery_dlq.letter import DeadLetter


def why_not(app: Any, letter: DeadLetter) -> str | None:
    """The reason why ``letter`` must not be sent; None when it may."""
    if letter.task not in app.tasks:
        return (
            f"task {letter.task} is not registered in this app; "
            "deploy or import it, or discard the letter"
        )
    if not letter.envelope.queue and not letter.envelope.exchange:
        return "the queue it came from is not known; discard it"
    return None
