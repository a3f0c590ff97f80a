"""The words a letter's life is told in, and the one table of allowed moves."""

from __future__ import annotations

from enum import Enum


class Verdict(str, Enum):
    """What classification says about an exception."""

    #: May heal by itself: worth another attempt.
    TRANSIENT = "transient"
    #: Will fail again the same way: a person or a deployment has to act.
    TERMINAL = "terminal"


class Reason(str, Enum):
    """Why a message became a dead letter."""

    #: The exception was classified as terminal.
    TERMINAL = "terminal"
    #: Attempts or the retry window were used up.
    EXHAUSTED = "exhausted"
    #: Too many retries of its task had been made already: see ``dlq_retry_budget``.
    BUDGET = "budget"
    #: The hard time limit killed the task.
    TIMEOUT = "timeout"
    #: Its worker process died under the task, ``dlq_max_deliveries`` times or with no delivery to follow.
    POISON = "poison"
    #: The task raised ``Reject(requeue=False)``, or its retry could not be published.
    REJECTED = "rejected"
    #: The body ran to its end, but its outcome could not be stored or passed on. A redrive runs it a
    #: second time, so only one that names the letter or this reason takes it.
    UNSTORED = "unstored"
    #: The worker was shut down under the task, whose message was acknowledged already.
    CANCELLED = "cancelled"
    #: The worker that took the message knows no task of that name.
    UNKNOWN_TASK = "unknown_task"
    #: The message cannot be decoded, or is no task message.
    MALFORMED = "malformed"
    #: Brought in from a dead-letter queue of the broker's.
    INGESTED = "ingested"
    #: It waited in the store for its next attempt. A letter only once a person has discarded it.
    PARKED = "parked"


class State(str, Enum):
    """Where a dead letter is. See ``docs/state_machine.md`` for the picture."""

    #: Waits for somebody. Entered by capture, a renewed failure, a rescued claim or an undone
    #: discard; left by a claim, a discard, or a late success of another copy.
    DEAD = "dead"
    #: Held by one redrive under a lease. Left by the broker's confirmation (``REDRIVEN``), by
    #: release or rescue (to what it was), or by an outcome that overtook the confirmation.
    CLAIMED = "claimed"
    #: Back on its queue, outcome awaited. The worker's success resolves it, a renewed failure
    #: makes it ``DEAD`` again; an operator may claim or discard it when no outcome ever comes.
    REDRIVEN = "redriven"
    #: Ran successfully. Only a newer failure of the same task id leads out.
    RESOLVED = "resolved"
    #: Closed by a person, with a reason. Undone by ``undiscard`` or by a newer failure.
    DISCARDED = "discarded"
    #: Waits in the store for its next attempt, and is no dead letter: it is in no group and counts as
    #: no depth. Released when it is due; then it is a message again, and only its failure leads here.
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

#: The states that count as depth: nothing has closed the letter yet.
OPEN_STATES: frozenset[State] = frozenset({State.DEAD, State.CLAIMED, State.REDRIVEN})


def may_move(source: State, target: State) -> bool:
    """Whether a letter in ``source`` may enter ``target``."""
    return target in TRANSITIONS[source]
