"""The app that the benchmarks' workers run, with or without the dead-letter queue."""

import json
import logging
import os
import time

import redis
from celery import Celery, Task

app = Celery("bench", broker=os.environ["BENCH_BROKER"])
app.conf.update(
    task_default_queue=os.environ["BENCH_QUEUE"],
    task_ignore_result=True,
    task_acks_late=bool(os.environ["BENCH_LATE"]),
    broker_connection_retry_on_startup=True,
)
BASE: type[Task] = Task
if os.environ["BENCH_STORE"]:
    # A worker of plain Celery imports nothing of this package.
    from celery_dlq import DLQTask

    BASE = DLQTask
    app.conf.update(
        dlq_store_url=os.environ["BENCH_STORE"],
        dlq_breaker_streak=int(os.environ["BENCH_STREAK"]),
        dlq_retry_budget=json.loads(os.environ["BENCH_BUDGET"]),
        dlq_breaker_failures=int(os.environ["BENCH_BREAKER"]),
        dlq_search_values=int(os.environ["BENCH_VALUES"]),
        dlq_recorder=bool(os.environ["BENCH_RECORDER"]),
        dlq_log_lines=int(os.environ["BENCH_LINES"]),
        dlq_encryption_keys=json.loads(os.environ["BENCH_KEYS"]),
    )

if os.environ["BENCH_VISIBILITY"]:
    app.conf.broker_transport_options = {
        "visibility_timeout": int(os.environ["BENCH_VISIBILITY"]),
        "unacked_restore_throttle": 1,
    }

logger = logging.getLogger("bench")
_counter = redis.Redis.from_url(os.environ["BENCH_BROKER"])


@app.task(base=BASE, name="bench.succeed")
def succeed(number: int, payload: str = "") -> None: ...


@app.task(base=BASE, name="bench.compute")
def compute(number: int, seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@app.task(base=BASE, name="bench.note", bind=True)
def note(self: Task) -> None:
    handle = os.open(os.environ["BENCH_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, f"{self.request.id}\n".encode())
    os.close(handle)


@app.task(base=BASE, name="bench.answer")
def answer(number: int) -> None:
    _counter.lpush(os.environ["BENCH_QUEUE"] + "-done", number)


@app.task(base=BASE, name="bench.fail")
def fail(number: int, order: dict[str, object], lines: int = 0) -> None:
    for line in range(lines):
        logger.info("order %d, line %d", number, line)
    _counter.incr(os.environ["BENCH_QUEUE"] + "-done")
    raise ValueError(f"order {number} has no currency")


@app.task(base=BASE, name="bench.call", bind=True)
def call(self: Task, number: int) -> None:
    queue = os.environ["BENCH_QUEUE"]
    if _counter.exists(f"{queue}-away"):
        _counter.incr(f"{queue}-retried" if self.request.retries else f"{queue}-offered")
        raise ConnectionError("the service is away")
    _counter.incr(f"{queue}-done")


@app.task(base=BASE, name="bench.back_off", bind=True)
def back_off(self: Task, number: int, seconds: int, kind: str = "") -> None:
    run = f"{kind}{number}.{self.request.retries}"
    _counter.hincrby(os.environ["BENCH_QUEUE"] + "-runs", run, 1)
    if not self.request.retries:
        raise self.retry(exc=ConnectionError("the service is away"), countdown=seconds)
