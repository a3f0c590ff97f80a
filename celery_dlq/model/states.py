"""The states, reasons and verdicts of a letter, and the one table of allowed moves."""

from __future__ import annotations

from enum import Enum


class Verdict(str, Enum):
    """Whether another attempt is worth making after an exception."""

    #: May pass by itself: worth another attempt.
    TRANSIENT = "transient"
    #: Will fail again the same way: a person or a deployment has to act.
    TERMINAL = "terminal"


class Reason(str, Enum):
    """Why a message became a dead letter."""

    #: The exception was classified as terminal.
    TERMINAL = "terminal"
    #: Attempts or the retry window were used up.
    EXHAUSTED = "exhausted"
    #: Its task had already made too many retries: see ``dlq_retry_budget``.
    BUDGET = "budget"
    #: The hard time limit killed the task.
    TIMEOUT = "timeout"
    #: Its worker process died while it ran the task: ``dlq_max_deliveries`` times, or once if the message was
    #: already acknowledged.
    POISON = "poison"
    #: The task raised ``Reject(requeue=False)``, or gave its message back too often; or its retry could not
    #: be published.
    REJECTED = "rejected"
    #: The body ran to its end, but its outcome could not be stored or passed on. A redrive runs it a
    #: second time, so a redrive takes it only if it names the letter or this reason.
    UNSTORED = "unstored"
    #: The worker was shut down while the task ran, and its message was already acknowledged.
    CANCELLED = "cancelled"
    #: Its worker was killed after it had acknowledged the message, and before the task had ended. It may have
    #: run in part, or to its end, so a redrive takes it only if it names the letter or this reason, or if the
    #: task says ``dlq_idempotent = True``.
    LOST = "lost"
    #: The worker that took the message has no task with that name.
    UNKNOWN_TASK = "unknown_task"
    #: The message cannot be decoded, or is not a task message.
    MALFORMED = "malformed"
    #: Brought in from the broker's dead-letter queue.
    INGESTED = "ingested"
    #: It waited in the store for its next attempt. It is a letter only after a person has discarded it.
    PARKED = "parked"
    #: The broker did not take it from its sender. It waits in the store until the broker answers: see
    #: ``dlq_unsent``.
    UNSENT = "unsent"


#: The reasons of messages that wait in the store. Letters have them only after a person has discarded them.
WAITING_REASONS: frozenset[Reason] = frozenset({Reason.PARKED, Reason.UNSENT})


class State(str, Enum):
    """The state of a dead letter. ``celery dlq help state-machine`` has the picture."""

    #: Waits for a person. Entered by capture, another failure, a rescued claim or an undone discard;
    #: left by a claim, a discard, or a late success of another copy.
    DEAD = "dead"
    #: Held by one redrive under a lease. Left by the broker's confirmation (``REDRIVEN``), by release
    #: or rescue (to its previous state), or by an outcome that came before the confirmation.
    CLAIMED = "claimed"
    #: Back in its queue; its outcome is awaited. A success resolves it, another failure makes it
    #: ``DEAD`` again; an operator may claim or discard it if no outcome comes.
    REDRIVEN = "redriven"
    #: Ran successfully. Only a newer failure of the same task id opens it again.
    RESOLVED = "resolved"
    #: Closed by a person, with a reason. Undone by ``undiscard`` or by a newer failure.
    DISCARDED = "discarded"
    #: Waits in the store for its next attempt. It is not a dead letter: it is not in a group and does
    #: not count in the depth. It is released when it is due; then it is a message again, and becomes a
    #: letter only if it fails.
    PARKED = "parked"


#: Every move a letter may make. The store refuses all others.
TRANSITIONS: dict[State, frozenset[State]] = {
    State.DEAD: frozenset({State.CLAIMED, State.DISCARDED, State.RESOLVED}),
    State.CLAIMED: frozenset({State.REDRIVEN, State.DEAD, State.RESOLVED}),
    State.REDRIVEN: frozenset({State.RESOLVED, State.DEAD, State.CLAIMED, State.DISCARDED}),
    State.RESOLVED: frozenset({State.DEAD}),
    State.DISCARDED: frozenset({State.DEAD}),
    State.PARKED: frozenset({State.DEAD, State.DISCARDED}),
}

#: The states that count in the depth: the letter is not closed yet.
OPEN_STATES: frozenset[State] = frozenset({State.DEAD, State.CLAIMED, State.REDRIVEN})

#: The states of letters that are done with. Only a newer failure of the same task id, or an undone discard,
#: opens such a letter again.
CLOSED_STATES: frozenset[State] = frozenset({State.RESOLVED, State.DISCARDED})

#: The states of letters that a person may delete. The message of a claimed letter is being sent.
DELETABLE_STATES: frozenset[State] = frozenset({*CLOSED_STATES, State.DEAD, State.REDRIVEN})


def may_move(source: State, target: State) -> bool:
    """Whether a letter in ``source`` may enter ``target``."""
    return target in TRANSITIONS[source]
