"""The meaning of each reason, and the step before a redrive."""

from __future__ import annotations

from collections.abc import Mapping

from celery_dlq.model.states import Reason

#: Follows the name of the reason and a colon.
MEANINGS: Mapping[Reason, str] = {
    Reason.TERMINAL: "it would fail again in the same way",
    Reason.EXHAUSTED: "its attempts or its retry window were used up",
    Reason.BUDGET: "its task had used up its retry budget",
    Reason.TIMEOUT: "the hard time limit killed it",
    Reason.POISON: "its worker process died while it ran",
    Reason.REJECTED: "it was rejected, or its retry could not be published",
    Reason.UNSTORED: "it ran to its end, but its outcome could not be stored",
    Reason.CANCELLED: "its worker was shut down while it ran",
    Reason.LOST: "its worker was killed while it ran",
    Reason.UNKNOWN_TASK: "the worker has no task with this name",
    Reason.MALFORMED: "it cannot be decoded, or is not a task message",
    Reason.INGESTED: "it came from a dead-letter queue of the broker",
    Reason.PARKED: "its next attempt waited in the store",
}

_FIRST: Mapping[Reason, str] = {
    Reason.EXHAUSTED: "",
    Reason.BUDGET: "when the storm is over: ",
    Reason.PARKED: "",
    Reason.LOST: "check what the task has done; if it may run again: ",
    Reason.UNKNOWN_TASK: "deploy the task, then: ",
    Reason.MALFORMED: "discard it; or, once a worker can read it: ",
}


def first_step(reason: Reason) -> str:
    """The step before a letter is sent back; ends with a colon, or is empty."""
    return _FIRST.get(reason, "fix the cause, then: ")
