"""The start and the memory of a worker that is idle: of plain Celery, which imports nothing of this package,
and with the dead-letter queue."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import redis

from benchmarks.services import BROKER
from benchmarks.side_by_side import make_store
from benchmarks.worker import Way, environment_of, new_queue, send, wait

ROUNDS = 5
#: No-op tasks before the look, and seconds after them, in which the upkeep has had its first round.
TASKS, SETTLE_S = 20, 5.0

#: Celery's command line imports the commands of all installed packages, also ours.
_WITHOUT_OURS = """
from importlib import metadata
found = metadata.entry_points
metadata.entry_points = lambda **asked: [one for one in found(**asked) if one.name != "dlq"]
from celery.__main__ import main
main()
"""

#: The measures, and their units. Pages that processes share are counted in part for each of them ("shared
#: out"), or for none ("its own").
_SHOWN = {
    "parent": "MB", "child, shared out": "MB", "child, its own": "MB", "all, shared out": "MB",
    "threads": "", "processor until the first task": "s", "until the first task": "s",
}  # fmt: skip


def run() -> dict[str, dict[str, float]]:
    """The medians of all measures, by way."""
    print(f"an idle worker, Redis, prefork -c 2, SQLite; the median of {ROUNDS} rounds")
    found: dict[str, list[Mapping[str, float]]] = {"Task": [], "DLQTask": []}
    with tempfile.TemporaryDirectory() as directory:
        store = f"sqlite:///{directory}/store.sqlite3"
        make_store(store)
        for _ in range(ROUNDS):
            found["Task"].append(_measure(Way(), ["-c", _WITHOUT_OURS], directory))
            found["DLQTask"].append(_measure(Way(store), ["-m", "celery"], directory))
    medians = {
        way: {what: statistics.median(one[what] for one in looks) for what in _SHOWN}
        for way, looks in found.items()
    }
    for what, unit in _SHOWN.items():
        plain, ours = (one[what] for one in medians.values())
        print(f"  {what:30} {plain:8.2f} {ours:8.2f}   {ours - plain:+8.2f} {unit}")
    return medians


def _measure(way: Way, program: list[str], directory: str) -> Mapping[str, float]:
    queue, began = new_queue(), time.monotonic()
    worker = subprocess.Popen(
        [sys.executable, *program, "-A", "benchmarks.app", "worker", "-c", "2", "-l", "CRITICAL",
         "-n", f"{queue}@%h", "--without-gossip", "--without-mingle"],
        env=environment_of(way, queue), cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        with redis.Redis.from_url(BROKER) as client:
            send("bench.answer", 1, queue)
            wait(lambda: client.lpop(f"{queue}-done"))
            first_task_s, processor_s = time.monotonic() - began, _processor_s(worker.pid)
            send("bench.succeed", TASKS, queue)
            wait(lambda: not client.llen(queue))
        time.sleep(SETTLE_S)
        return _look(worker.pid) | {
            "processor until the first task": processor_s, "until the first task": first_task_s,
        }  # fmt: skip
    finally:
        worker.terminate()
        worker.wait()


def _look(worker: int) -> dict[str, float]:
    children = Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
    parent, pool = _memory_mb(worker), [_memory_mb(int(child)) for child in children]
    return {
        "parent": parent["Rss"],
        "child, shared out": statistics.mean(child["Pss"] for child in pool),
        "child, its own": statistics.mean(
            child["Private_Clean"] + child["Private_Dirty"] for child in pool
        ),
        "all, shared out": sum(process["Pss"] for process in (parent, *pool)),
        "threads": len(os.listdir(f"/proc/{worker}/task")),
    }


def _memory_mb(pid: int) -> dict[str, float]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {
        name: int(kb.split()[0]) / 1024 for name, _, kb in (one.partition(":") for one in lines)
    }


def _processor_s(pid: int) -> float:
    """The seconds that the process has computed, in its own code and in the kernel."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")
