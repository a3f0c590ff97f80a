"""Messages that a broker delivers again, beside new ones: their deliveries are counted before they run."""

from __future__ import annotations

import contextlib
import json
import tempfile
from functools import partial

import redis

from benchmarks.rounds import measure, report
from benchmarks.services import BROKER, fresh_postgres
from benchmarks.side_by_side import WARM_UP, make_store, rate
from benchmarks.worker import Way, new_queue, running, send

ROUNDS, TASKS = 10, 250


def run() -> dict[str, float]:
    """No-op tasks per second whose messages came back, as a ratio to new ones, by store and
    acknowledgement."""
    ratios: dict[str, float] = {}
    with fresh_postgres() as postgres, tempfile.TemporaryDirectory() as directory:
        sqlite = f"sqlite:///{directory}/store.sqlite3"
        make_store(sqlite)
        for name, store in (("PostgreSQL", postgres), ("SQLite", sqlite)):
            for when, is_late in (("late", True), ("early", False)):
                title = f"{name}, {when} acknowledgement, prefork -c 2 on Redis, {TASKS} at a time"
                measured = _measured(Way(store, acks_late=is_late), directory)
                found = report(title, [measured], show=lambda speed: f"{speed:.0f} tasks/s")
                ratios[f"{name}, {when}"] = found["given back"]
    return ratios


def _measured(way: Way, directory: str) -> dict[str, list[float]]:
    """Tasks per second of one worker, by round."""
    queue, new, back = new_queue(), new_queue(), new_queue()
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(redis.Redis.from_url(BROKER))
        stack.callback(client.delete, new, back)
        send("bench.succeed", TASKS, new)
        client.rpush(back, *map(_given_back, client.lrange(new, 0, -1)))
        pid = stack.enter_context(running(way, queue, directory))
        figures = {
            name: partial(rate, client, staged, queue, pid, TASKS)
            for name, staged in (("new", new), ("given back", back))
        }
        measure(figures, WARM_UP)
        return measure(figures, ROUNDS)


def _given_back(item: bytes) -> str:
    """The message as Redis has it when it was given back, with an id of its own."""
    payload = json.loads(item)
    payload["headers"]["id"] = payload["properties"]["correlation_id"] = new_queue()
    payload["headers"]["redelivered"] = True
    payload["properties"]["delivery_info"]["redelivered"] = True
    return json.dumps(payload)
