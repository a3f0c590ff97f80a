"""The calls that a service gets while it is away: from prefork workers on Redis under a steady load,
with a retry budget, with a circuit breaker, and without either."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import redis
from celery import Celery

from benchmarks.services import BROKER
from benchmarks.worker import Way, new_queue, running, send, wait

RATE, LEAD_S, AWAY_S = 10, 5, 30
SHARE, LIMIT = 0.2, 20


WAYS: dict[str, dict[str, Any]] = {
    "without either": {},
    f"a budget of {SHARE:.0%}": {"retry_budget": SHARE},
    f"a breaker at {LIMIT} failures": {"breaker_failures": LIMIT},
}


def run() -> dict[str, float]:
    """Calls while the service was away for each message that came in that time, by way; side by side."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        client = stack.enter_context(redis.Redis.from_url(BROKER))
        queues = {}
        for name, options in WAYS.items():
            queue = queues[name] = new_queue()
            way = Way(f"sqlite:///{directory}/{queue}.sqlite3", **options)
            stack.enter_context(running(way, queue, directory))
            stack.callback(client.delete, *(f"{queue}-{key}" for key in _KEYS))
            send("bench.call", 1, queue)
            wait(partial(client.get, f"{queue}-done"))
        _send_steadily(list(queues.values()), LEAD_S)
        _switch(client, queues.values(), away=True)
        _send_steadily(list(queues.values()), AWAY_S)
        _switch(client, queues.values(), away=False)
        print(f"a service away for {AWAY_S} s, {RATE} messages a second, prefork -c 2 on Redis")
        return {name: _factor(client, name, queue) for name, queue in queues.items()}


_KEYS = ("away", "offered", "retried")


def _switch(client: redis.Redis, queues: Iterable[str], *, away: bool) -> None:
    for queue in queues:
        client.set(f"{queue}-away", "1") if away else client.delete(f"{queue}-away")


def _factor(client: redis.Redis, name: str, queue: str) -> float:
    # Counted where the calls are made: on a busy machine some come later than they were sent.
    offered, retried = (int(client.get(f"{queue}-{key}") or 0) for key in ("offered", "retried"))
    # What a breaker has parked runs when the service is back.
    messages = RATE * AWAY_S if "breaker" in name else offered
    factor = (offered + retried) / messages
    print(f"  {name:28} {offered + retried:>6} calls for {messages} messages   factor {factor:.2f}")
    return factor


def _send_steadily(queues: Sequence[str], seconds: int) -> None:
    app = Celery("sender", broker=BROKER, set_as_current=False)
    began = time.monotonic()
    with app.producer_or_acquire() as producer:
        for number in range(seconds * RATE):
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))
            for queue in queues:
                app.send_task("bench.call", (number,), queue=queue, producer=producer)
    app.close()
    time.sleep(max(0.0, began + seconds - time.monotonic()))
