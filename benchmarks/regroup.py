"""A new recipe for groups, applied to a large store: how long it takes, and how long a failure takes to be
stored meanwhile.

The store is as an earlier recipe left it, which gave each name in a message a group of its own: 2,000 groups
of a few hundred causes.
"""

from __future__ import annotations

import os
import statistics
import time

from sqlalchemy import create_engine, text

from benchmarks.failing import failing
from benchmarks.filled import PATTERNS, count_again, fill
from benchmarks.services import fresh_postgres
from celery_dlq.base.redact import Redactor
from celery_dlq.model.group import Assign
from celery_dlq.store.base import Filter
from celery_dlq.store.sql import SQLStore
from celery_dlq.upkeep.regroup import Regrouper
from celery_dlq.worker.grouping import Grouping

LETTERS = int(os.environ.get("BENCH_LETTERS", "1000000"))
#: Failures per second.
RATE = 50.0
#: Seconds of failures without a regrouping, before and after it.
AROUND_S = 30.0

_NOISE = (
    f"UPDATE celery_dead_letter SET fingerprint = lpad(to_hex(id % {PATTERNS}), 16, '0')",
    'UPDATE celery_dead_letter_content c SET grounds = \'{"frames": ["shop.tasks:\' || l.task || \'"], '
    '"is_own": true, "lines": ["raise ValueError number"], "evidence": [], "causes": [], '
    '"needs_message": false, "recipe": ""}\' FROM celery_dead_letter l WHERE l.id = c.id',
)


def run() -> None:
    """Print the time, the groups before and after, and the latencies on PostgreSQL."""
    with fresh_postgres() as store_url:
        fill(store_url, LETTERS)
        engine = create_engine(store_url)
        with engine.begin() as connection:
            for statement in _NOISE:
                connection.execute(text(statement))
            count_again(connection)
        engine.dispose()
        measure(store_url)


def measure(store_url: str) -> None:
    """Regroup a filled store while tasks fail."""
    store = SQLStore(store_url, timeout=60)
    before = _groups(store)
    decided = store.groups.find(Filter(), now=store.now(), limit=1)[0].fingerprint
    store.groups.triage(decided, Assign(owner="ann"), who="ann", now=store.now())
    regrouper, looked = Regrouper(store, Grouping(Redactor())), 0

    def count(letters: int, _moved: int) -> None:
        nonlocal looked
        looked += letters

    with failing(store_url, RATE) as failures:
        time.sleep(AROUND_S)
        regrouper.begin(who="ann", why="")
        began = time.monotonic()
        regrouper.run(count)
        ended = time.monotonic()
        time.sleep(AROUND_S)
    owner = store.groups.get(decided, now=store.now())
    print(
        f"regroup: {looked:,} letters of {before:,} groups in {ended - began:.0f} s, "
        f"{looked / (ended - began):,.0f} letters in a second; {_groups(store):,} groups with open letters "
        f"afterwards; the owner is {owner.owner if owner else 'lost'}; {failures.refused} failures refused"
    )
    for title, spans in (
        ("without it", [(began - AROUND_S + 5, began), (ended, ended + AROUND_S)]),
        ("meanwhile", [(began, ended)]),
    ):
        times = sorted(failures.latencies(spans))
        print(
            f"  a failure is stored {title} in {statistics.median(times) * 1_000:.1f} ms (median), "
            f"{times[int(len(times) * 0.99)] * 1_000:.1f} ms (99 %), {len(times):,} failures"
        )
    store.close()


def _groups(store: SQLStore) -> int:
    return len(store.groups.find(Filter(), now=store.now(), limit=1_000_000))


if __name__ == "__main__":
    run()
