"""The kinds of tasks that are sent, and where each must end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from celery_dlq.model.states import Reason

#: Ends without a letter: the body ran to its end; the message was dropped as its sender or task asked.
DONE, DROPPED = "done", "dropped"


@dataclass(frozen=True)
class Kind:
    #: Also the name of the task.
    name: str
    #: Its share of all tasks that are sent.
    share: float
    end: str | Reason
    meaning: str
    #: Whether its body may ask for a retry, which cannot be sent while the broker is away.
    retries: bool = False
    #: Whether it ends only after it was sent back from the store, and is sent only to brokers that fail over.
    is_sent_back: bool = False
    #: Bounds of ``countdown`` in seconds.
    countdown: tuple[float, float] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def send_options(self, random: Random) -> dict[str, Any]:
        """The options of ``send_task``."""
        delay = {"countdown": round(random.uniform(*self.countdown), 3)} if self.countdown else {}
        return {**self.options, **delay}


KINDS = {
    kind.name: kind
    for kind in (
        Kind("quick", 0.41, DONE, "succeeds at once"),
        Kind("slow", 0.12, DONE, "succeeds after up to a second"),
        # Celery refuses less than a second for a quorum queue.
        Kind("later", 0.08, DONE, "succeeds; sent with a countdown", countdown=(1.0, 6.0)),
        Kind("recovers", 0.18, DONE, "fails once or twice, then succeeds", retries=True),
        Kind("terminal", 0.08, Reason.TERMINAL, "raises an error that no retry can fix"),
        Kind("exhausted", 0.04, Reason.EXHAUSTED, "fails on every attempt", retries=True),
        Kind("rejects", 0.03, Reason.REJECTED, "raises Reject"),
        Kind("hangs", 0.002, Reason.TIMEOUT, "exceeds its hard time limit"),
        Kind("kills", 0.002, Reason.POISON, "kills its own process, each time"),
        Kind("unheard_of", 0.01, Reason.UNKNOWN_TASK, "no worker knows a task of that name"),
        Kind("ignores", 0.02, DROPPED, "raises Ignore"),
        Kind("expires", 0.02, DROPPED, "has already expired when it is sent", options={"expires": -60}),
        Kind("parks", 0.02, DONE, "its retry is parked; then succeeds", True, True),
        Kind("heals", 0.02, DONE, "raises; succeeds after an automatic redrive", False, True),
        Kind("redriven", 0.02, DONE, "raises; succeeds after a redrive", False, True),
    )
}  # fmt: skip


def mix(tasks: int, random: Random, *, sent_back: bool = False) -> list[Kind]:
    """Tasks of each kind in their shares, at least one of each, in random order.

    :param sent_back: whether some are sent back from the store, in the place of tasks that succeed at once.
    """
    chosen_kinds = [kind for kind in KINDS.values() if sent_back or not kind.is_sent_back]
    counts = {kind.name: max(1, round(tasks * kind.share)) for kind in chosen_kinds}
    rest = KINDS["quick"].name
    counts[rest] = max(1, counts[rest] + tasks - sum(counts.values()))
    chosen = [KINDS[name] for name, count in counts.items() for _ in range(count)]
    random.shuffle(chosen)
    return chosen[:tasks]
