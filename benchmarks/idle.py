"""The cost of many workers for PostgreSQL: connections, and statements per second; while they are idle, and
while tasks fail; directly, and through a PgBouncer in transaction mode, where another program's long
statements share the connections."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
import redis

from benchmarks.own_postgres import pgbouncer, postgresql
from benchmarks.services import BROKER
from benchmarks.worker import Way, environment_of, new_queue, send, wait
from celery_dlq.store.database import schema
from celery_dlq.store.database.engine import Database

WORKERS = int(os.environ.get("BENCH_WORKERS", "40"))
#: Workers that start at a time.
AT_A_TIME = 4
#: Seconds after which a worker has settled, and for which it is looked at.
SETTLE_S, LOOK_S = 30.0, float(os.environ.get("BENCH_LOOK_S", "60"))
#: Failures per second under a steady load, of all workers together; and seconds after which that, or a storm
#: of failures, has settled.
STEADY, RAMP_S = 20, 5.0
#: More failures per second than workers on one machine can run, so that a storm lasts.
STORM = 2_000
#: Seconds that a statement of the other program takes: longer than the store lets its own take.
LONG_S = 7
#: Statements of the other program that run at a time.
NEIGHBOURS = 2

#: Counts, and is not counted: it is in another database.
_STATEMENTS = """
SELECT sum(calls) FROM pg_stat_statements JOIN pg_database ON pg_database.oid = dbid WHERE datname = 'shop'
"""
_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'shop'"
_OPENED = "SELECT sessions FROM pg_stat_database WHERE datname = 'shop'"


@dataclass(frozen=True)
class Load:
    """What the server saw within a second, on average; and the most connections at a time."""

    connections: float
    most: int
    opened: float
    statements: float

    def __str__(self) -> str:
        return (
            f"{self.connections:5.1f} connections, {self.most:3} at most, {self.opened:5.2f} opened/s, "
            f"{self.statements:6.1f} statements/s"
        )


def run() -> dict[str, float]:
    """Statements per second of all workers together, by way."""
    print(f"{WORKERS} workers of pool solo, for {LOOK_S:g} s each")
    with postgresql() as port, _connected(port, "postgres") as monitor:
        monitor.execute("CREATE EXTENSION pg_stat_statements")
        monitor.execute("CREATE DATABASE shop")
        database = Database(_url(port), timeout=30)
        schema.upgrade(database)
        database.close()
        with _workers(_url(port)) as queue:
            direct = _looked_at("directly, before any letter", monitor)
            _fail_everywhere(queue)
            after = _looked_at("directly, after a letter each", monitor)
            with _failing(queue, STEADY):
                steady = _looked_at(f"directly, {STEADY} failures a second", monitor, RAMP_S)
            with _failing(queue, STORM):
                storm = _looked_at("directly, in a storm of failures", monitor, RAMP_S)
        with pgbouncer(port) as pooled:
            through = _behind(pooled, monitor)
    return {
        "direct": direct.statements,
        "after letters": after.statements,
        "steady": steady.statements,
        "storm": storm.statements,
        "pgbouncer": through.statements,
    }


def _behind(port: int, monitor: psycopg.Connection) -> Load:
    with _workers(_url(port)) as queue, _neighbours(port) as ended:
        _fail_everywhere(queue)
        load = _looked_at("through PgBouncer, with the other program", monitor)
    untouched = sum(1 for error in ended if not error)
    print(f"  the other program: {untouched} statements of {LONG_S} s untouched, ", end="")
    print(f"{len(ended) - untouched} cancelled or refused {sorted({*ended} - {''})}")
    return load


@contextlib.contextmanager
def _workers(store_url: str) -> Iterator[str]:
    queue = new_queue()
    environment = environment_of(Way(store_url=store_url), queue)
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as directory:
        try:
            for number in range(WORKERS):
                started.append(_start(number, queue, environment, directory))
                if len(started) % AT_A_TIME == 0:
                    _wait_until_ready(directory, started)
            _wait_until_ready(directory, started)
            yield queue
        finally:
            for worker in started:
                worker.terminate()
            for worker in started:
                worker.wait()
            with redis.Redis.from_url(BROKER) as client:
                client.delete(queue, f"{queue}-done")


def _start(
    number: int, queue: str, environment: dict[str, str], directory: str
) -> subprocess.Popen[bytes]:
    with Path(directory, f"{number}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "benchmarks.app", "worker", "-P", "solo", "-l", "INFO",
             "--prefetch-multiplier", "1", "-n", f"{queue}-{number}@%h", "--without-gossip",
             "--without-mingle"],
            env=environment, cwd=directory, stdout=log, stderr=log,
        )  # fmt: skip


def _wait_until_ready(directory: str, started: Sequence[subprocess.Popen[bytes]]) -> None:
    logs = [Path(directory, f"{number}.log") for number in range(len(started))]

    def are_ready() -> bool:
        for worker, log in zip(started, logs, strict=True):
            if worker.poll() is not None:
                said = log.read_text(errors="replace")[-2000:]
                sys.exit(f"a worker ended with status {worker.returncode}: {said}")
        return all(b" ready." in log.read_bytes() for log in logs)

    wait(are_ready, every_s=0.5)


def _fail_everywhere(queue: str) -> None:
    """Have letters written, so that every worker has needed its writer."""
    failures = 5 * WORKERS
    send("bench.fail", failures, queue, {})
    with redis.Redis.from_url(BROKER) as client:
        wait(lambda: int(client.get(f"{queue}-done") or 0) >= failures, every_s=0.5)


@contextlib.contextmanager
def _failing(queue: str, per_s: int) -> Iterator[None]:
    """Within this block, ``per_s`` tasks are sent in a second, which fail; what is left of them is removed.
    Prints how many have failed in a second."""
    stopping = threading.Event()

    def work() -> None:
        while not stopping.wait(0.1):
            send("bench.fail", per_s // 10, queue, {})

    with redis.Redis.from_url(BROKER) as client:
        before, began = int(client.get(f"{queue}-done") or 0), time.monotonic()
        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()
            done = int(client.get(f"{queue}-done") or 0) - before
            print(f"    {done / (time.monotonic() - began):.0f} tasks have failed in a second")
            client.delete(queue)


def _looked_at(title: str, monitor: psycopg.Connection, settle_s: float = SETTLE_S) -> Load:
    time.sleep(settle_s)
    statements, opened = _ask(monitor, _STATEMENTS), _ask(monitor, _OPENED)
    began, seen = time.monotonic(), list[int]()
    while time.monotonic() - began < LOOK_S:
        seen.append(_ask(monitor, _CONNECTIONS))
        time.sleep(0.25)
    took_s = time.monotonic() - began
    load = Load(
        connections=sum(seen) / len(seen),
        most=max(seen),
        opened=(_ask(monitor, _OPENED) - opened) / took_s,
        statements=(_ask(monitor, _STATEMENTS) - statements) / took_s,
    )
    print(f"  {title:42} {load}", flush=True)
    return load


@contextlib.contextmanager
def _neighbours(port: int) -> Iterator[list[str]]:
    """Run long statements meanwhile; gives how each has ended: the error, empty for none."""
    ended, stopping = list[str](), threading.Event()

    def work() -> None:
        while not stopping.is_set():
            error = _error_of_long_statement(port)
            ended.append(error)
            stopping.wait(1.0 if error else 0.0)

    threads = [threading.Thread(target=work) for _ in range(NEIGHBOURS)]
    for thread in threads:
        thread.start()
    try:
        yield ended
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def _error_of_long_statement(port: int) -> str:
    try:
        with _connected(port, "shop") as connection:
            connection.execute(f"SELECT pg_sleep({LONG_S})")
    except psycopg.Error as error:
        return type(error).__name__
    return ""


def _connected(port: int, database: str) -> psycopg.Connection:
    return psycopg.connect(
        host="127.0.0.1", port=port, user="bench", dbname=database, autocommit=True,
        prepare_threshold=None,
    )  # fmt: skip


def _ask(monitor: psycopg.Connection, question: str) -> int:
    row = monitor.execute(question.encode()).fetchone()
    return int(row[0] or 0) if row else 0


def _url(port: int) -> str:
    return f"postgresql+psycopg://bench@127.0.0.1:{port}/shop"
