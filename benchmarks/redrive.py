"""How fast letters go back: claim, publish, mark, from PostgreSQL to Redis; against what teams write by
hand, a loop of ``send_task`` and DELETE per row on one kept connection."""

from __future__ import annotations

import json
import time
import uuid
from datetime import datetime, timedelta, timezone
from functools import partial

import redis
from celery import Celery
from sqlalchemy import create_engine, text

from benchmarks.rounds import compare
from benchmarks.services import BROKER, fresh_postgres
from benchmarks.worker import new_queue
from celery_dlq import DeadLetterQueue, Filter
from celery_dlq.letter import Attempt, DeadLetter, Envelope, Explanation
from celery_dlq.states import Reason, State, Verdict

ROUNDS, LETTERS, BY_HAND = 3, 20_000, 2_000
ARGUMENTS = [{"id": 17, "items": ["x" * 100] * 20}]


def run() -> dict[str, float]:
    """Median letters per second of the redrive, as a ratio to the loop."""
    with fresh_postgres() as store_url:
        ways = {
            "send_task + DELETE": partial(_by_hand, store_url),
            "redrive": partial(_redrive, store_url),
        }
        return compare(
            f"redrive of {LETTERS} letters of 2 kB, PostgreSQL to Redis",
            ways, rounds=ROUNDS, show=lambda rate: f"{rate:.0f} letters/s", digits=1,
        )  # fmt: skip


def _redrive(store_url: str) -> float:
    queue = new_queue()
    app = Celery("bench", broker=BROKER, set_as_current=False)
    app.conf.dlq_store_url = store_url
    app.task(_charge, name="bench.charge", shared=False)
    dlq = DeadLetterQueue.of(app)
    for start in range(0, LETTERS, 1_000):
        dlq.store.save([_letter(queue) for _ in range(start, start + 1_000)])
    began = time.perf_counter()
    report = dlq.redrive(Filter(queue=queue), who="bench")
    rate = LETTERS / (time.perf_counter() - began)
    _check(queue, report.sent, LETTERS)
    dlq.store.discard(
        Filter(queue=queue, states=frozenset({State.REDRIVEN})),
        who="bench", why="done", now=datetime.now(timezone.utc),
    )  # fmt: skip
    dlq.store.close()
    return rate


def _by_hand(store_url: str) -> float:
    queue = new_queue()
    app = Celery("bench", broker=BROKER, set_as_current=False)
    engine = create_engine(store_url)
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE IF NOT EXISTS by_hand (id text PRIMARY KEY, task text, args text)")
        )
        rows = [
            {"id": uuid.uuid4().hex, "task": "bench.charge", "args": json.dumps(ARGUMENTS)}
            for _ in range(BY_HAND)
        ]
        connection.execute(text("INSERT INTO by_hand VALUES (:id, :task, :args)"), rows)
    began = time.perf_counter()
    with engine.connect() as connection:
        for task_id, task, args in connection.execute(
            text("SELECT id, task, args FROM by_hand")
        ).all():
            app.send_task(task, json.loads(args), task_id=task_id, queue=queue)
            connection.execute(text("DELETE FROM by_hand WHERE id = :id"), {"id": task_id})
            connection.commit()
    rate = BY_HAND / (time.perf_counter() - began)
    _check(queue, BY_HAND, BY_HAND)
    engine.dispose()
    return rate


def _check(queue: str, sent: int, expected: int) -> None:
    client = redis.Redis.from_url(BROKER)
    assert sent == client.llen(queue) == expected, (sent, client.llen(queue), expected)
    client.delete(queue)
    client.close()


def _charge(order: object) -> None: ...


def _letter(queue: str) -> DeadLetter:
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
