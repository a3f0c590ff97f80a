"""The app that the benchmarks' workers run, with or without the dead-letter queue."""

import os

import redis
from celery import Celery, Task

from celery_dlq import DLQTask

app = Celery("bench", broker=os.environ["BENCH_BROKER"])
app.conf.update(
    task_default_queue=os.environ["BENCH_QUEUE"],
    task_ignore_result=True,
    task_acks_late=bool(os.environ["BENCH_LATE"]),
    broker_connection_retry_on_startup=True,
)
if os.environ["BENCH_STORE"]:
    app.conf.update(
        dlq_store_url=os.environ["BENCH_STORE"],
        dlq_brake_failures=int(os.environ["BENCH_BRAKE"]),
    )

BASE = DLQTask if os.environ["BENCH_STORE"] else Task

_counter = redis.Redis.from_url(os.environ["BENCH_BROKER"])


@app.task(base=BASE, name="bench.succeed")
def succeed(number: int) -> None: ...


@app.task(base=BASE, name="bench.fail")
def fail(number: int, order: dict[str, object]) -> None:
    _counter.incr(os.environ["BENCH_QUEUE"] + "-done")
    raise ValueError(f"order {number} has no currency")
