"""The cost of keeping the last log lines of each run that fails: failing tasks per second through prefork
workers on Redis, with a letter of each in SQLite. The workers log at the level INFO, to nowhere."""

from __future__ import annotations

import contextlib
import tempfile

import redis

from benchmarks.capture import failing
from benchmarks.rounds import compare
from benchmarks.services import BROKER
from benchmarks.worker import Way

ROUNDS = 10
#: Lines that each task logs, and tasks at a time.
CASES = {0: 2_000, 10: 2_000, 1_000: 300}
PAYLOAD = {"items": ["x" * 100] * 20}


def run() -> dict[str, float]:
    """Median throughput by the number of lines, with 50 kept, as a ratio to plain Celery."""
    return {f"{lines} lines": _compare(lines, tasks) for lines, tasks in CASES.items()}


def _compare(lines: int, tasks: int) -> float:
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        client = stack.enter_context(redis.Redis.from_url(BROKER))
        ways = {
            "plain Celery": Way(log_level="INFO"),
            "plain Celery again": Way(log_level="INFO"),
            "no lines kept": Way(f"sqlite:///{directory}/a.sqlite3", log_level="INFO", log_lines=0),
            "50 lines kept": Way(f"sqlite:///{directory}/b.sqlite3", log_level="INFO"),
        }
        ratios = compare(
            f"failing tasks that log {lines} lines each, prefork -c 2 on Redis, {tasks} at a time",
            {
                name: failing(stack, client, way, directory, tasks, PAYLOAD, lines)
                for name, way in ways.items()
            },
            rounds=ROUNDS, show=lambda rate: f"{rate:.0f} tasks/s",
        )  # fmt: skip
        return ratios["50 lines kept"]
