"""The app of the capture benchmark: one task that fails, with or without the dead-letter queue."""

import os

import redis
from celery import Celery, Task

from celery_dlq import DLQTask

app = Celery("failing", broker=os.environ["BENCH_BROKER"])
app.conf.update(
    task_default_queue=os.environ["BENCH_QUEUE"],
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
)
if os.environ["BENCH_STORE"]:
    app.conf.dlq_store_url = os.environ["BENCH_STORE"]

_counter = redis.Redis.from_url(os.environ["BENCH_BROKER"])


@app.task(base=DLQTask if os.environ["BENCH_STORE"] else Task, name="bench.fail")
def fail(order: dict[str, object]) -> None:
    _counter.incr(os.environ["BENCH_QUEUE"] + "-done")
    raise ValueError(f"order {order['id']} has no currency")
