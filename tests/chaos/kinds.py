"""The kinds of tasks that are sent, and where each must end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from celery_dlq.states import Reason

#: Ends that are no letter: the body ran to its end; the message was dropped as its sender or task asked.
DONE, DROPPED = "done", "dropped"


@dataclass(frozen=True)
class Kind:
    #: Also the name of the task.
    name: str
    #: Of all tasks that are sent.
    share: float
    end: str | Reason
    meaning: str
    #: Whether its body may ask for a retry, whose sending a broker that is away can refuse.
    retries: bool = False
    #: Bounds of ``countdown`` in seconds.
    countdown: tuple[float, float] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def send_options(self, random: Random) -> dict[str, Any]:
        """What ``send_task`` is given."""
        delay = {"countdown": round(random.uniform(*self.countdown), 3)} if self.countdown else {}
        return {**self.options, **delay}


KINDS = {
    kind.name: kind
    for kind in (
        Kind("quick", 0.41, DONE, "succeeds at once"),
        Kind("slow", 0.12, DONE, "succeeds after up to a second"),
        Kind("later", 0.08, DONE, "succeeds; sent with a countdown", countdown=(0.5, 6.0)),
        Kind("recovers", 0.18, DONE, "fails once or twice, then succeeds", retries=True),
        Kind("terminal", 0.08, Reason.TERMINAL, "raises what no retry can heal"),
        Kind("exhausted", 0.04, Reason.EXHAUSTED, "fails on every attempt", retries=True),
        Kind("rejects", 0.03, Reason.REJECTED, "raises Reject"),
        Kind("hangs", 0.002, Reason.TIMEOUT, "runs into its hard time limit"),
        Kind("kills", 0.002, Reason.POISON, "kills its own process, each time"),
        Kind("unheard_of", 0.01, Reason.UNKNOWN_TASK, "no worker knows a task of that name"),
        Kind("ignores", 0.02, DROPPED, "raises Ignore"),
        Kind("expires", 0.02, DROPPED, "is sent when it has expired", options={"expires": -60}),
    )
}  # fmt: skip


def mix(tasks: int, random: Random) -> list[Kind]:
    """So many tasks of each kind that the shares hold, one of each at least, in random order."""
    counts = {name: max(1, round(tasks * kind.share)) for name, kind in KINDS.items()}
    rest = KINDS["quick"].name
    counts[rest] += max(0, tasks - sum(counts.values()))
    chosen = [KINDS[name] for name, count in counts.items() for _ in range(count)]
    random.shuffle(chosen)
    return chosen[:tasks]
