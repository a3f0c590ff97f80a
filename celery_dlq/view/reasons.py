"""What each reason means, and what is to be done about it."""

from __future__ import annotations

from collections.abc import Mapping

from celery_dlq.states import Reason

#: What follows the name of a reason and a colon.
MEANINGS: Mapping[Reason, str] = {
    Reason.TERMINAL: "would fail again the same way",
    Reason.EXHAUSTED: "its attempts or its retry window were used up",
    Reason.BUDGET: "its task had used up its retry budget",
    Reason.TIMEOUT: "the hard time limit killed it",
    Reason.POISON: "its worker process died under it",
    Reason.REJECTED: "it was rejected, or its retry could not be published",
    Reason.UNSTORED: "it ran to its end, but its outcome could not be stored",
    Reason.CANCELLED: "its worker was shut down under it",
    Reason.UNKNOWN_TASK: "the worker knows no task of that name",
    Reason.MALFORMED: "it cannot be decoded, or is no task message",
    Reason.INGESTED: "it came from a dead-letter queue of the broker's",
    Reason.PARKED: "its next attempt waited in the store",
}

_FIRST: Mapping[Reason, str] = {
    Reason.EXHAUSTED: "",
    Reason.BUDGET: "when the storm is over: ",
    Reason.PARKED: "",
    Reason.UNKNOWN_TASK: "deploy the task, then: ",
    Reason.MALFORMED: "discard it; or, once a worker can read it: ",
}


def first_step(reason: Reason) -> str:
    """What is to be done before a letter is sent back; ends in a colon, or is empty."""
    return _FIRST.get(reason, "mend the cause, then: ")
