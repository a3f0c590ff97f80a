"""The cost for tasks that succeed, end to end: no-op tasks per second through prefork workers on Redis,
from a full queue until it is empty."""

from __future__ import annotations

from functools import partial

from benchmarks.rounds import report
from benchmarks.side_by_side import throughput
from benchmarks.worker import Way

#: Each set of rounds has workers of its own, because a process keeps its memory layout. Many short
#: rounds rather than few long ones, so that other work of the machine affects both of a pair.
SETS, ROUNDS, TASKS = 10, 30, 250


def run() -> dict[str, float]:
    """Median throughput of each way, as a ratio to Celery's base class with the same acks_late."""
    ratios: dict[str, float] = {}
    for name, late in (("early", False), ("late", True)):
        ratios |= {f"{way}, {name}": ratio for way, ratio in _run(name, late).items()}
    return ratios


def _run(name: str, late: bool) -> dict[str, float]:
    title = f"succeeding tasks, {name} acknowledgement, prefork -c 2 on Redis, {TASKS} at a time"
    ways = partial(_ways, late)
    sets = [throughput(ways, TASKS, ROUNDS) for _ in range(SETS)]
    return report(title, sets, show=lambda rate: f"{rate:.0f} tasks/s")


def _ways(late: bool, store: str) -> dict[str, Way]:
    return {
        "Task": Way(acks_late=late),
        "Task again": Way(acks_late=late),
        "DLQTask": Way(store, acks_late=late),
        "DLQTask with a brake": Way(store, acks_late=late, brake_failures=100),
    }
