"""The cost for tasks that succeed, end to end: tasks per second through prefork workers on Redis, from a full
queue until it is empty; for tasks that do nothing, and for tasks that compute. For tasks that do nothing also
the processor time of the worker's parent."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import partial

from benchmarks.rounds import report
from benchmarks.side_by_side import parents_us, throughput
from benchmarks.worker import Way


@dataclass(frozen=True)
class _Load:
    """What the workers run. Each set of rounds has workers of its own, because a process keeps its memory
    layout. Many short rounds rather than few long ones, so that other work of the machine affects both of a
    pair."""

    name: str
    task: str
    arguments: tuple[object, ...]
    sets: int
    rounds: int
    #: Tasks of a round.
    tasks: int


_LOADS = (
    _Load("tasks that do nothing", "bench.succeed", (), sets=10, rounds=30, tasks=250),
    _Load("tasks of 5 ms", "bench.compute", (0.005,), sets=5, rounds=10, tasks=200),
)


def run() -> dict[str, float]:
    """Median throughput of each way, as a ratio to Celery's base class with the same acks_late."""
    ratios: dict[str, float] = {}
    for load in _LOADS:
        for name, late in (("early", False), ("late", True)):
            found = _run(load, name, late).items()
            ratios |= {f"{way}, {name}, {load.name}": ratio for way, ratio in found}
    for name, late in (("early", False), ("late", True)):
        ratios |= _time_parents(_LOADS[0], name, late)
    return ratios


def _run(load: _Load, name: str, late: bool) -> dict[str, float]:
    title = f"{load.name}, {name} acknowledgement, prefork -c 2 on Redis, {load.tasks} at a time"
    ways = partial(_ways, late)
    sets = [
        throughput(ways, load.tasks, load.rounds, *load.arguments, task=load.task)
        for _ in range(load.sets)
    ]
    return report(title, sets, show=lambda rate: f"{rate:.0f} tasks/s")


def _time_parents(load: _Load, name: str, late: bool) -> dict[str, float]:
    """Print the processor time of the parent for a message; returns by how many microseconds it is above that
    with ``Task``, by way."""
    sets = [
        throughput(partial(_ways_of_parents, late), load.tasks, load.rounds, figure=parents_us)
        for _ in range(load.sets)
    ]
    print(f"processor time of the parent for a message, {name} acknowledgement")
    above = {}
    for way in sets[0]:
        pairs = [pair for one in sets for pair in zip(one[way], one["Task"], strict=True)]
        above[way] = statistics.median(mine - its for mine, its in pairs)
        own = statistics.median(mine for mine, _ in pairs)
        print(f"  {way:28} {own:8.0f} µs   {above[way]:+.0f} µs")
    return {f"{way}, {name}, µs of the parent": us for way, us in above.items()}


def _ways_of_parents(late: bool, store: str) -> dict[str, Way]:
    return {
        "Task": Way(acks_late=late),
        "Task again": Way(acks_late=late),
        "DLQTask without the recorder": Way(store, acks_late=late, recorder=False),
        "DLQTask": Way(store, acks_late=late),
    }


def _ways(late: bool, store: str) -> dict[str, Way]:
    return {
        "Task": Way(acks_late=late),
        "Task again": Way(acks_late=late),
        "DLQTask": Way(store, acks_late=late),
        "DLQTask with a streak": Way(store, acks_late=late, breaker_streak=100),
    }
