"""How long the pages of the tab in Flower take over a large store, and whether Flower answers meanwhile.

The results are milliseconds, not ratios, because a person waits for a page.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from urllib.parse import quote
from urllib.request import Request, urlopen

from sqlalchemy import create_engine, text

from benchmarks.redrive import letter_for
from benchmarks.services import BROKER, fresh_postgres
from benchmarks.worker import ROOT, wait
from celery_dlq import DeadLetter, Filter, Reason
from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import Counts, OperationState, Orders
from celery_dlq.store.base import Operation
from celery_dlq.store.sql import SQLStore

LETTERS = int(os.environ.get("BENCH_LETTERS", "1000000"))
ROUNDS, BATCH = 7, 2_000
TASKS, QUEUES, GROUPS, DAYS = 40, 5, 400, 30
#: A text that a handful of the letters have, and how many these are.
NEEDLE, HANDFUL = "needle", 6
#: A redrive of the largest group, whose letters succeeded; the group; the letters of a claim.
OPERATION, REDRIVEN, CLAIM = "0123456789ab", f"{0:016x}", 500
#: Seconds between two rounds: what Flower keeps of the store is then too old to be shown.
REST_S = 11.0

_CREDENTIALS = "ann:secret"


def run() -> dict[str, float]:
    """Median milliseconds of each page, and the longest health check of Flower during the runs."""
    with fresh_postgres() as store_url, _flower(store_url) as flower:
        some = _fill(store_url)
        found, slowest = _measure(flower, _pages(some))
    print(
        f"pages over {LETTERS:,} letters in PostgreSQL, {ROUNDS} rounds, nothing kept from the last"
    )
    for page, taken in found.items():
        print(f"  {page:50} {taken:7.0f} ms")
    print(f"  {'health check meanwhile, at worst':50} {slowest:7.0f} ms")
    return {**found, "healthcheck": slowest}


def _pages(some: DeadLetter) -> dict[str, str]:
    since = quote(f"{DAYS // 2}d")
    return {
        "overview": "/dead-letters",
        "overview, last hour": "/dead-letters?range=1h",
        "overview, last 30 days": "/dead-letters?range=30d",
        "groups": "/dead-letters/groups",
        "one group": f"/dead-letters/groups/{some.fingerprint}",
        "one group, last hour": f"/dead-letters/groups/{some.fingerprint}?range=1h",
        "one group, last 30 days": f"/dead-letters/groups/{some.fingerprint}?range=30d",
        "letters": "/dead-letters/letters",
        "letters of a task": f"/dead-letters/letters?task={some.task}",
        "letters of an exception, by time": f"/dead-letters/letters?exception=ValueError&since={since}",
        "letters by text, frequent": f"/dead-letters/letters?search={some.message}",
        "letters by text, in a handful": f"/dead-letters/letters?search={NEEDLE}",
        "letters by text, in none": "/dead-letters/letters?search=haystack",
        "letters by worker, none": "/dead-letters/letters?worker=nobody",
        "redrive of a task": f"/dead-letters/redrive?task={some.task}",
        "redrive of a group": f"/dead-letters/redrive?group={some.fingerprint}",
        "redrive of an exception, by time": f"/dead-letters/redrive?exception=ValueError&since={since}",
        "discard of all of an hour": "/dead-letters/discard?since=2h&until=1h",
        "one letter": f"/dead-letters/letters/{some.task_id}",
        "editor": f"/dead-letters/letters/{some.task_id}/edit",
        "operations": "/dead-letters/operations",
        "one operation": f"/dead-letters/operations/{OPERATION}",
        "letters of an operation": f"/dead-letters/letters?operation={OPERATION}&state=resolved",
        "audit": "/dead-letters/audit",
    }


def _measure(flower: str, pages: dict[str, str]) -> tuple[dict[str, float], float]:
    taken: dict[str, list[float]] = {page: [] for page in pages}
    checks: list[float] = []
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(flower, checks, over))
    watch.start()
    for _ in range(ROUNDS):
        for page, path in random.sample(list(pages.items()), len(pages)):
            taken[page].append(_get(flower + path))
        time.sleep(REST_S)
    over.set()
    watch.join()
    return {page: statistics.median(times) for page, times in taken.items()}, max(checks)


def _watch(flower: str, checks: list[float], over: threading.Event) -> None:
    while not over.wait(0.02):
        checks.append(_get(f"{flower}/healthcheck"))


def _get(url: str) -> float:
    """Milliseconds until the whole answer is there."""
    secret = base64.b64encode(_CREDENTIALS.encode()).decode()
    began = time.perf_counter()
    with urlopen(Request(url, headers={"Authorization": f"Basic {secret}"}), timeout=60) as answer:
        answer.read()
    return (time.perf_counter() - began) * 1_000


@contextlib.contextmanager
def _flower(store_url: str) -> Iterator[str]:
    """The address of a Flower that knows the store."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CELERY_DLQ_STORE_URL": store_url}
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-b", BROKER, "flower", "--address=127.0.0.1",
             f"--port={port}", f"--basic_auth={_CREDENTIALS}"],
            cwd=directory, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            wait(lambda: _listens(port), 0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _fill(store_url: str) -> DeadLetter:
    """Fill the store; returns one of its open letters."""
    drawn, store = random.Random(2026), SQLStore(store_url, timeout=60)
    made: list[DeadLetter] = []
    for first in range(0, LETTERS, BATCH):
        made = [_letter(drawn) for _ in range(min(BATCH, LETTERS - first))]
        if first % (LETTERS // HANDFUL) < BATCH:
            made[0] = made[0].with_(message=NEEDLE)
        store.letters.save(made)
    assert store.counts.letters(Filter()) == LETTERS
    _redrive(store)
    store.close()
    engine = create_engine(store_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        # Autovacuum would do this in time, but it may be off on this server.
        connection.execute(text("VACUUM ANALYZE"))
    engine.dispose()
    return next(one for one in made if one.fingerprint != REDRIVEN)


def _redrive(store: SQLStore) -> None:
    """Redrive the letters of the largest group; each succeeds. The redrive has not ended, so that its page is
    the one that refreshes itself."""
    now, wanted = datetime.now(timezone.utc), Filter(group=REDRIVEN)
    made = Operation(
        id=OPERATION, wanted=wanted.before(now), orders=Orders(), created_at=now, who="bench",
        host="bench", counts=Counts(planned=store.counts.letters(wanted)),
    )  # fmt: skip
    store.operations.create(made)
    begun = store.operations.move(OPERATION, OperationState.RUNNING, who="bench", now=now)
    for number in itertools.count():
        at = now + timedelta(milliseconds=100 * number)
        until = at + timedelta(minutes=5)
        token = f"claim-{number}"
        held = store.claims.take(begun, token=token, lease_until=until, limit=CLAIM, now=at)
        ids = [item.task_id for item in held.letters]
        if not ids:
            break
        store.claims.confirm(OPERATION, token, dict.fromkeys(ids, ""), now=at)
        store.letters.record_outcomes(
            [Outcome(task_id=one, redrive=1, succeeded_at=at, worker="bench") for one in ids]
        )


def _letter(drawn: random.Random) -> DeadLetter:
    group = min(int(drawn.expovariate(8 / GROUPS)), GROUPS - 1)
    at = datetime.now(timezone.utc) - timedelta(days=DAYS * drawn.random() ** 3)
    made = letter_for(f"queue-{group % QUEUES}")
    return made.with_(
        task=f"shop.task_{group % TASKS}",
        reason=drawn.choice([Reason.TERMINAL, Reason.TERMINAL, Reason.EXHAUSTED, Reason.TIMEOUT]),
        exception_type="ValueError" if group % 3 else "shop.errors.Declined",
        message=f"declined-{group}",
        fingerprint=f"{group:016x}",
        first_failed_at=at,
        last_failed_at=at,
        attempts=tuple(replace(attempt, failed_at=at) for attempt in made.attempts),
    )
