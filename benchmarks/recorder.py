"""The cost of the flight recorder for tasks that are acknowledged early: its time for a message, tasks per
second through workers with and without it, and the memory of a worker's parent over many tasks."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import redis
from kombu import Connection
from kombu.message import Message

from benchmarks.rounds import compare, report
from benchmarks.services import BROKER
from benchmarks.side_by_side import make_store, throughput
from benchmarks.worker import Way, new_queue, running, send, wait
from celery_dlq.recorder.flight import FlightRecorder

#: Bytes of the messages' arguments.
SIZES = (200, 20_000)
SETS, ROUNDS, TASKS = 5, 30, 250
CALL_ROUNDS, CALLS = 50, 2_000
#: Tasks that run while the parent's memory is measured, and how many of them warm the worker up.
MANY = int(os.environ.get("BENCH_TASKS", "1000000"))
WARM_UP, PORTION = MANY // 10, 5_000


def run() -> dict[str, float]:
    """Median throughput with the recorder, as a ratio to that without it, by the size of the message; and by
    how many MB the parent has grown over the tasks."""
    _time_calls()
    ratios: dict[str, float] = {}
    for size in SIZES:
        title = f"{size:,} bytes, early acknowledgement, prefork -c 2 on Redis, {TASKS} at a time"
        sets = [throughput(_ways, TASKS, ROUNDS, "x" * size) for _ in range(SETS)]
        found = report(title, sets, show=lambda rate: f"{rate:.0f} tasks/s", digits=3)
        ratios |= {f"{way}, {size:,} bytes": ratio for way, ratio in found.items()}
    return {**ratios, "growth of the parent, MB": _growth_mb()}


def _ways(store: str) -> dict[str, Way]:
    return {
        "without": Way(store, recorder=False),
        "without, again": Way(store, recorder=False),
        "with the recorder": Way(store),
    }


def _time_calls() -> None:
    """Print the microseconds of a message: copied, acknowledged, ended."""
    with tempfile.TemporaryDirectory() as directory, Connection("memory://") as connection:
        recorder = FlightRecorder(directory, worker="bench")
        channel = connection.channel()
        messages = {f"{size:,} bytes": _message(channel, size) for size in SIZES}
        compare(
            f"recording a message, {CALLS} at a time",
            {name: partial(_time, recorder, message) for name, message in messages.items()},
            rounds=CALL_ROUNDS, show=lambda seconds: f"{seconds * 1e6:.2f} µs",
        )  # fmt: skip
        recorder.close()


def _message(channel: Any, size: int) -> Message:
    task_id = str(uuid.uuid4())
    headers: dict[str, Any] = {
        "lang": "py", "task": "bench.succeed", "id": task_id, "shadow": None, "eta": None,
        "expires": None, "group": None, "group_index": None, "retries": 0,
        "timelimit": [None, None], "root_id": task_id, "parent_id": None,
        "argsrepr": "(1, 'x')", "kwargsrepr": "{}", "origin": "gen1@host",
        "ignore_result": False, "replaced_task_nesting": 0, "stamped_headers": None, "stamps": {},
    }  # fmt: skip
    return Message(
        body=json.dumps([[1, "x" * size], {}, {}]),
        channel=channel,
        delivery_tag=str(uuid.uuid4()),
        content_type="application/json",
        content_encoding="utf-8",
        delivery_info={"exchange": "", "routing_key": "celery"},
        headers=headers,
        properties={"correlation_id": task_id, "delivery_mode": 2, "priority": 0},
    )


def _time(recorder: FlightRecorder, message: Message) -> float:
    message._state = "ACK"
    began = time.perf_counter()
    for _ in range(CALLS):
        entry = recorder.record(message, "bench.succeed", 1)
        assert entry is not None
        entry.end()
    return (time.perf_counter() - began) / CALLS


def _growth_mb() -> float:
    """Print the memory of a worker's parent after each tenth of many tasks; returns its growth after the
    first one."""
    queue, seen = new_queue(), list[float]()
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        client = stack.enter_context(redis.Redis.from_url(BROKER))
        staged = new_queue()
        stack.callback(client.delete, staged)
        send("bench.succeed", PORTION, staged, "x" * SIZES[0])
        store = f"sqlite:///{directory}/store.sqlite3"
        make_store(store)
        pid = stack.enter_context(running(Way(store), queue, directory))
        for done in range(0, MANY, PORTION):
            client.copy(staged, f"{queue}-next")
            client.rename(f"{queue}-next", queue)
            wait(lambda: not client.llen(queue), every_s=0.02)
            if (done + PORTION) % WARM_UP == 0:
                seen.append(_private_mb(pid))
    print(f"memory of the parent over {MANY:,} tasks, MB after each tenth")
    print("  " + " ".join(f"{mb:.1f}" for mb in seen))
    return seen[-1] - seen[0]


def _private_mb(pid: int) -> float:
    """The memory that the process has for itself, without the files of the recorder."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    private = (line.split()[1] for line in lines if line.startswith("Private_Dirty:"))
    return sum(map(int, private)) / 1024
