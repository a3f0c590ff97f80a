"""Measures how fast letters go back: claim, publish with the broker's confirmation, mark; in one
process. It is compared with RQ (``rq requeue --all``), and with the usual script: SELECT, and for each
row ``send_task``, DELETE and commit, on connections that are kept."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from functools import partial

import redis
from celery import Celery
from sqlalchemy import create_engine, text

from benchmarks.rounds import compare
from benchmarks.services import BROKER, RABBITMQ, fresh_postgres
from benchmarks.worker import KEYS, new_queue
from celery_dlq import DeadLetterQueue, DLQTask, Filter
from celery_dlq.cli.redrive.running import redrive_tuning
from celery_dlq.model.letter import Attempt, DeadLetter, Envelope, Explanation
from celery_dlq.model.operation import Guard, OperationState, Orders
from celery_dlq.model.states import Reason, State, Verdict

ROUNDS = 3
LETTERS = int(os.environ.get("BENCH_LETTERS", "20000"))
#: The others take so much longer that a part of it says the same.
OTHERS = LETTERS // 5
ARGUMENTS = [{"id": 17, "items": ["x" * 100] * 20}]

RQ, LOOP, REDRIVE = "rq requeue --all", "send_task + DELETE", "redrive"


def run() -> dict[str, float]:
    """Median letters per second of a redrive, as a ratio to RQ's, by broker and database."""
    ratios = {}
    for title, broker, opened in (
        ("Redis + PostgreSQL", BROKER, fresh_postgres),
        ("Redis + SQLite", BROKER, _fresh_sqlite),
        ("RabbitMQ + PostgreSQL", RABBITMQ, fresh_postgres),
    ):
        with opened() as store_url:
            ratios[title] = _compare(title, broker, store_url)
    return ratios


def _compare(title: str, broker: str, store_url: str) -> float:
    ways: dict[str, Callable[[], float]] = {
        RQ: _by_rq,
        LOOP: partial(_by_hand, broker, store_url),
        REDRIVE: partial(redrive, broker, store_url),
    }
    return compare(
        f"redrive of {LETTERS} letters of 2 kB, {title} (RQ: Redis)",
        ways, rounds=ROUNDS, show=lambda rate: f"{rate:.0f} letters/s", digits=1, beside=LOOP,
    )[REDRIVE]  # fmt: skip


@contextlib.contextmanager
def _fresh_sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as directory:
        yield f"sqlite:///{directory}/store.sqlite3"


@contextlib.contextmanager
def fresh_queue(broker: str, expected: int, patience_s: float = 0) -> Iterator[tuple[Celery, str]]:
    """An app and a queue of its own, which must hold as many messages in the end.

    :param patience_s: seconds that messages may still take to arrive, if the sender does not wait for
        the broker.
    """
    app, queue = Celery("bench", broker=broker, set_as_current=False), new_queue()
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        channel.queue_declare(queue, durable=True, auto_delete=False)
        yield app, queue
        until = time.monotonic() + patience_s
        while (found := channel.queue_declare(queue, passive=True).message_count) < expected:
            if time.monotonic() >= until:
                break
            time.sleep(0.05)
        channel.queue_purge(queue)  # kombu deletes no queue on Redis that is bound to no exchange
        channel.queue_delete(queue)
    app.close()
    assert found == expected, (found, expected)


def redrive(broker: str, store_url: str, encrypted: bool = False) -> float:
    """Letters per second of a redrive from this store to this broker."""
    with fresh_queue(broker, LETTERS) as (app, queue):
        app.conf.update(dlq_store_url=store_url, dlq_encryption_keys=KEYS if encrypted else None)
        app.task(_charge, name="bench.charge", base=DLQTask, shared=False)
        dlq = DeadLetterQueue.of(app)
        for start in range(0, LETTERS, 1_000):
            dlq.store.letters.save(
                [letter_for(queue) for _ in range(start, min(start + 1_000, LETTERS))]
            )
        began = time.perf_counter()
        with redrive_tuning():  # as the command does
            # No worker runs here whose outcomes a guard could wait for.
            done = dlq.redrives.start(
                Filter(queue=queue), who="bench", orders=Orders(guard=Guard(enabled=False))
            )
        rate = LETTERS / (time.perf_counter() - began)
        assert done.state is OperationState.DONE, done
        dlq.store.closing.discard(
            Filter(queue=queue, states=frozenset({State.REDRIVEN})),
            who="bench", why="done", now=datetime.now(timezone.utc),
        )  # fmt: skip
        dlq.store.close()
    return rate


def _by_hand(broker: str, store_url: str) -> float:
    engine = create_engine(store_url)
    with fresh_queue(broker, OTHERS, patience_s=10) as (app, queue), engine.connect() as connection:
        connection.execute(
            text("CREATE TABLE IF NOT EXISTS by_hand (id text PRIMARY KEY, task text, args text)")
        )
        rows = [
            {"id": uuid.uuid4().hex, "task": "bench.charge", "args": json.dumps(ARGUMENTS)}
            for _ in range(OTHERS)
        ]
        connection.execute(text("INSERT INTO by_hand VALUES (:id, :task, :args)"), rows)
        connection.commit()
        began = time.perf_counter()
        for task_id, task, args in connection.execute(
            text("SELECT id, task, args FROM by_hand")
        ).all():
            app.send_task(task, json.loads(args), task_id=task_id, queue=queue)
            connection.execute(text("DELETE FROM by_hand WHERE id = :id"), {"id": task_id})
            connection.commit()
        rate = OTHERS / (time.perf_counter() - began)
    engine.dispose()
    return rate


def _by_rq() -> float:
    from rq import Queue
    from rq.cli.cli import main
    from rq.registry import FailedJobRegistry

    with redis.Redis.from_url(BROKER) as client:
        queue = Queue(new_queue(), connection=client)
        registry = FailedJobRegistry(queue=queue)
        with client.pipeline() as pipe:
            for _ in range(OTHERS):
                job = queue.create_job("bench.charge", args=ARGUMENTS, status="failed")
                job.save(pipeline=pipe)
                registry.add(job, ttl=-1, pipeline=pipe)
            pipe.execute()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            began = time.perf_counter()
            main(
                ["requeue", "--all", "--queue", queue.name, "--url", BROKER], standalone_mode=False
            )
            rate = OTHERS / (time.perf_counter() - began)
        assert (len(queue), len(registry)) == (OTHERS, 0)
        queue.delete(delete_jobs=True)
    return rate


def _charge(order: object) -> None: ...


def letter_for(queue: str) -> DeadLetter:
    """A letter of 2 kB that died on ``queue`` an hour ago."""
    task_id, now = uuid.uuid4().hex, datetime.now(timezone.utc) - timedelta(hours=1)
    attempt = Attempt(
        number=1, redrive=0, failed_at=now, exception_type="ValueError", message="bad currency",
        verdict=Verdict.TERMINAL, rule="python.bug", worker="bench@host", pid=1,
    )  # fmt: skip
    headers = {
        "lang": "py", "task": "bench.charge", "id": task_id, "root_id": task_id, "parent_id": None,
        "group": None, "retries": 0, "eta": None, "expires": None, "argsrepr": str(ARGUMENTS)[:1_024],
        "kwargsrepr": "{}", "origin": "bench", "timelimit": [None, None], "ignore_result": False,
    }  # fmt: skip
    return DeadLetter(
        task_id=task_id, task="bench.charge", reason=Reason.TERMINAL,
        explanation=Explanation(verdict=Verdict.TERMINAL, rule="python.bug"),
        exception_type="ValueError", message="bad currency", traceback="x" * 4_000,
        fingerprint="9c1e0000deadbeef", args=ARGUMENTS, kwargs={}, attempts=(attempt,),
        first_failed_at=now, last_failed_at=now, worker="bench@host", pid=1, release="",
        root_id=task_id, parent_id=None, group_id=None, correlation_id=task_id, canvas="", tags=(),
        envelope=Envelope(
            body=json.dumps([ARGUMENTS, {}, {}]).encode(), content_type="application/json",
            content_encoding="utf-8", headers=headers,
            properties={"correlation_id": task_id, "reply_to": uuid.uuid4().hex, "priority": 0},
            exchange="", routing_key=queue, queue=queue,
        ),
    )  # fmt: skip
