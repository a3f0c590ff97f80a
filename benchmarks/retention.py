"""What a round of retention costs the workers: how long a failure takes to be stored while a round deletes
half of a large store, and while it does not.

The round is interrupted each minute for a while, so that both are measured side by side.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from celery import Celery
from sqlalchemy import Connection, Engine, create_engine, func, select, text

from benchmarks.failing import Failures, failing
from benchmarks.filled import attempt, content, fill, is_postgres, letter
from benchmarks.services import fresh_mariadb, fresh_postgres
from celery_dlq import DeadLetterQueue, Keep, Retention
from celery_dlq.store.base import SHARE, Lease
from celery_dlq.store.database.tables import group
from celery_dlq.store.tenure import Tenure, kept
from celery_dlq.upkeep.expiring import LEASE

LETTERS = int(os.environ.get("BENCH_LETTERS", "2000000"))
#: Ten of eleven letters are closed, and 33 of 60 days are over: a million of two million letters expire.
KEPT = timedelta(days=27)
#: Failures per second.
RATE = 50.0
#: Minutes of the round. Then it deletes the letters that are left without any pause, for this many minutes.
MINUTES = float(os.environ.get("BENCH_MINUTES", "15"))
HURRY_MINUTES = float(os.environ.get("BENCH_HURRY_MINUTES", "inf"))
#: Seconds of the round, and of the rest after them, by turns; and before the first and after the last turn.
WORK_S, REST_S, AROUND_S = 60.0, 20.0, 30.0
#: Seconds until the workers are warm.
WARM_S = 10.0

TABLES = (letter.name, content.name, attempt.name)

Span = tuple[float, float]


@dataclass
class Turns:
    """When the round worked, and when it did not."""

    worked: list[Span] = field(default_factory=list)
    rested: list[Span] = field(default_factory=list)
    #: When it worked without pauses, in the end.
    hurried: list[Span] = field(default_factory=list)
    #: Seconds for which the round paused by itself, and the letters that it deleted until it hurried.
    paused: float = 0.0
    deleted: int = 0

    def rest(self, seconds: float) -> None:
        began = time.monotonic()
        time.sleep(seconds)
        self.rested.append((began, time.monotonic()))

    @property
    def seconds(self) -> float:
        """Seconds of work, with its own pauses."""
        return sum(until - since for since, until in self.worked)


def run() -> None:
    """Print the latencies, the speed and the sizes on PostgreSQL and on MariaDB."""
    for title, opened in (("PostgreSQL", fresh_postgres), ("MariaDB", fresh_mariadb)):
        with opened() as store_url:
            fill(store_url, LETTERS)
            measure(title, store_url)


def measure(title: str, store_url: str) -> None:
    """Measure one round over a filled store, and clear up after it."""
    engine, turns = create_engine(store_url), Turns()
    before = _sizes(engine)
    with failing(store_url, RATE) as failures:
        time.sleep(WARM_S)
        deleted = _round(engine, turns)
        after = _sizes(engine)
        swept = list(_sweep(engine))
    print(
        f"{title}: {deleted:,} of {LETTERS:,} letters deleted, while {RATE:.0f} tasks fail in a second"
    )
    _print_latencies(failures, turns, {name: span for name, span, _sizes in swept})
    _print_speed(turns, deleted)
    _print_sizes("before", before)
    _print_sizes("after the round", after)
    for name, (since, until), sizes in swept:
        _print_sizes(f"after {name}, {until - since:.0f} s", sizes)
    engine.dispose()


def _round(engine: Engine, turns: Turns) -> int:
    """Delete what has expired, as ``dlq retention run`` does, with rests; returns how many letters."""
    app = Celery("bench", set_as_current=False)
    store_url = engine.url.render_as_string(hide_password=False)
    app.conf.update(dlq_store_url=store_url, dlq_retention=Retention(letters=[Keep(KEPT)]))
    dlq = DeadLetterQueue.of(app)
    turns.rest(AROUND_S)
    pauses = _Pauses(engine, turns)
    with _lease(dlq) as lease:
        ended = dlq.retention.run(lease, pauses)
    pauses.end()
    turns.rest(AROUND_S)
    dlq.store.close()
    return ended.letters


class _Pauses:
    """The pauses of the round, which take turns with rests."""

    def __init__(self, engine: Engine, turns: Turns) -> None:
        self._engine, self._turns = engine, turns
        self._began, self._closed = time.monotonic(), _closed_letters(engine)

    def __call__(self, seconds: float) -> bool:
        turns = self._turns
        if turns.seconds >= 60 * MINUTES:
            return time.monotonic() - self._began > 60 * HURRY_MINUTES
        time.sleep(seconds)
        turns.paused += seconds
        if time.monotonic() - self._began > WORK_S:
            self._work_is_over()
            turns.rest(REST_S)
            self._began = time.monotonic()
        return False

    def end(self) -> None:
        """Note the last turn."""
        if self._turns.seconds < 60 * MINUTES:
            self._work_is_over()
        else:
            self._turns.hurried.append((self._began, time.monotonic()))

    def _work_is_over(self) -> None:
        turns = self._turns
        turns.worked.append((self._began, time.monotonic()))
        turns.deleted = self._closed - _closed_letters(self._engine)


def _closed_letters(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(select(func.sum(group.c.resolved_count))).scalar_one())


@contextmanager
def _lease(dlq: DeadLetterQueue) -> Iterator[Lease]:
    tenure = Tenure(lambda: dlq.store, LEASE, "bench")
    lease = tenure.prolong()
    assert lease is not None
    with kept(tenure, lease):
        yield lease
    tenure.end()


def _print_latencies(failures: Failures, turns: Turns, swept: dict[str, Span]) -> None:
    print(
        "  until a failure is stored          median      p95      p99     most    p95 of single turns"
    )
    spans = {"without the round": turns.rested, "during the round": turns.worked}
    if turns.hurried:
        spans["during it, without pauses"] = turns.hurried
    spans |= {f"during {name}": [span] for name, span in swept.items()}
    for name, some in spans.items():
        print(f"    {name:30}{_summary(failures.latencies(some))}    {_range(failures, some)}")
    if failures.refused:
        print(f"    {failures.refused} failures were not stored")


def _print_speed(turns: Turns, deleted: int) -> None:
    busy = turns.seconds - turns.paused
    print(
        f"  {turns.deleted:,} letters in {turns.seconds / 60:.1f} minutes: "
        f"{turns.deleted / turns.seconds:.0f} letters/s, in {busy / turns.seconds:.0%} of the time "
        f"(at most {SHARE:.0%})"
    )
    for since, until in turns.hurried:
        rate = (deleted - turns.deleted) / (until - since)
        print(f"  without pauses: {rate:.0f} letters/s")


def _summary(seconds: list[float]) -> str:
    if len(seconds) < 100:
        return f"   only {len(seconds)} failures"
    cuts = statistics.quantiles(seconds, n=100)
    return "".join(
        f"{1_000 * value:6.1f} ms" for value in (cuts[49], cuts[94], cuts[98], max(seconds))
    )


def _range(failures: Failures, spans: list[Span]) -> str:
    """The 95th percentile in the best and in the worst turn."""
    each = [failures.latencies([span]) for span in spans]
    found = [1_000 * statistics.quantiles(one, n=100)[94] for one in each if len(one) > 100]
    return f"{min(found):.1f} to {max(found):.1f} ms" if len(found) > 1 else ""


def _sizes(engine: Engine) -> dict[str, int]:
    """Bytes on disk of each table, with its indexes."""
    with engine.connect() as connection:
        return {table: _size(connection, table) for table in TABLES}


def _size(connection: Connection, table: str) -> int:
    if is_postgres(connection):
        size = text("SELECT pg_total_relation_size(cast(:name AS regclass))")
        return int(connection.execute(size, {"name": table}).scalar_one())
    size = text(
        "SELECT file_size FROM information_schema.innodb_sys_tablespaces "
        "WHERE name = concat(database(), '/', :name)"
    )
    return int(connection.execute(size, {"name": table}).scalar_one())


def _print_sizes(when: str, sizes: dict[str, int]) -> None:
    each = ", ".join(
        f"{name.removeprefix('celery_dead_letter') or 'letter'} {size >> 20}"
        for name, size in sizes.items()
    )
    print(f"  {when:32} {sum(sizes.values()) >> 20:6} MB: {each}")


def _sweep(engine: Engine) -> Iterator[tuple[str, Span, dict[str, int]]]:
    """Clear up; yields each statement with its time, and the sizes after it."""
    named = ", ".join(TABLES)
    statements = ["OPTIMIZE TABLE"]
    if is_postgres(engine):
        statements = ["VACUUM ANALYZE", "VACUUM FULL"]
    for statement in statements:
        began = time.monotonic()
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(f"{statement} {named}"))
        yield statement, (began, time.monotonic()), _sizes(engine)
