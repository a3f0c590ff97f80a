"""The search for values: what it costs when tasks fail, how large its index is, and how long a search takes
in a large store.

The times of searches are milliseconds, not ratios, because a person waits for the page.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta, timezone
from typing import Any

import redis
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Select,
    create_engine,
    func,
    insert,
    literal,
    select,
    text,
    union_all,
    update,
)  # fmt: skip

from benchmarks.capture import failing
from benchmarks.filled import PATTERNS, analyze, fill, is_postgres
from benchmarks.letters import shop_letter
from benchmarks.rounds import compare
from benchmarks.services import BROKER, fresh_mariadb, fresh_postgres
from benchmarks.worker import Way
from celery_dlq import Filter
from celery_dlq.model.terms import hash_of_path, hash_of_value
from celery_dlq.store.base import Argument
from celery_dlq.store.database import tables
from celery_dlq.store.sql import SQLStore

LETTERS = int(os.environ.get("BENCH_LETTERS", "1000000"))
#: The most letters in SQLite, which is for small stores.
IN_SQLITE = 1_000_000
#: The most values of the arguments, and the arguments of a task that has as many.
LIMITS = (0, 8, 24)
ORDER = {f"field{number}": f"value {number}" for number in range(max(LIMITS))}
ROUNDS, TASKS = 10, 2_000
#: Letters that are saved at once, to measure their size.
SAVED = 5_000
#: Values of each letter in the large store, and letters that get theirs at once.
VALUES, BATCH = 8, 100_000
#: The argument in which letters have values that can be asked for.
COMMON = f"field{VALUES - 1}"
#: Letters that have a value in common.
HANDFUL, ONE_IN = 6, 10
DRAWS, PAGE = 200, 50

letter, term = tables.letter, tables.term

Look = Callable[[], object]


def run() -> dict[str, float]:
    """Median rate of failing tasks by the number of values, as a ratio to that without; and the 99th
    percentile of each search in milliseconds."""
    ratios = _rates()
    with tempfile.TemporaryDirectory() as directory:
        databases: Mapping[str, Callable[[], AbstractContextManager[str]]] = {
            "PostgreSQL": fresh_postgres,
            "MariaDB": fresh_mariadb,
            "SQLite": lambda: contextlib.nullcontext(f"sqlite:///{directory}/{uuid.uuid4()}"),
        }
        for name, database in databases.items():
            with database() as store_url:
                _measure_size(name, store_url)
            with database() as store_url:
                letters = LETTERS if name != "SQLite" else min(LETTERS, IN_SQLITE)
                ratios |= _look(name, store_url, letters)
    return ratios


def _rates() -> dict[str, float]:
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        client = stack.enter_context(redis.Redis.from_url(BROKER))
        ways = {
            f"{limit} values": failing(
                stack, client, Way(url, search_values=limit), directory, TASKS, ORDER
            )
            for limit in LIMITS
            for url in [stack.enter_context(fresh_postgres())]
        }
        return compare(
            f"failing tasks, prefork -c 2 on Redis, PostgreSQL, {TASKS} at a time", ways,
            rounds=ROUNDS, show=lambda rate: f"{rate:.0f} tasks/s",
        )  # fmt: skip


def _measure_size(name: str, store_url: str) -> None:
    """Print the bytes of a letter by the number of its values."""
    drawn, engine = random.Random(2026), create_engine(store_url)
    for limit in LIMITS:
        before, many = _bytes(engine, all_tables=True), 20 * SAVED
        store = SQLStore(store_url, timeout=60, value_limit=limit)
        for first in range(0, many, SAVED):
            given = (shop_letter(drawn, datetime.now(timezone.utc)) for _ in range(SAVED))
            store.letters.save([one.with_(kwargs=_order(first)) for one in given])
        store.close()
        grown = (_bytes(engine, all_tables=True) - before) / many
        print(f"{name}, {limit} values of the arguments: {grown:,.0f} bytes for a letter")
    engine.dispose()


def _order(number: int) -> dict[str, str]:
    return {name: f"{value} of {random.random()} in {number}" for name, value in ORDER.items()}


def _bytes(engine: Engine, *, all_tables: bool) -> int:
    """The size of the store, or only that of the values."""
    names = list(tables.metadata.tables) if all_tables else [term.name]
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if engine.dialect.name == "sqlite":
            size = text("SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE name LIKE :name")
            like = "%" if all_tables else f"%{term.name}%"
            return int(connection.execute(size, {"name": like}).scalar_one())
        if is_postgres(engine):
            size = text("SELECT pg_total_relation_size(:name)")
            return sum(connection.execute(size, {"name": name}).scalar_one() for name in names)
        for name in names:
            connection.execute(text(f"ANALYZE TABLE {name}"))
        size = text(
            "SELECT data_length + index_length FROM information_schema.tables"
            " WHERE table_schema = DATABASE() AND table_name = :name"
        )
        return sum(int(connection.execute(size, {"name": name}).scalar_one()) for name in names)


def _add_values(store_url: str, drawn: Sequence[int]) -> None:
    """Give each letter its values: most of them its own ones, which SQL makes; one letter in many has one in
    common with others.

    :param drawn: the ids of letters with a value that can be asked for.
    """
    engine = create_engine(store_url)
    [index] = term.indexes
    with engine.begin() as connection:
        # Building it of all rows is quicker than adding row by row.
        index.drop(connection)
        highest = connection.execute(select(func.max(letter.c.id))).scalar_one()
    for first in range(0, highest, BATCH):
        batch = letter.c.id > first, letter.c.id <= first + BATCH
        with engine.begin() as connection:
            connection.execute(insert(term).from_select(list(term.c), _values_of(*batch)))
    with engine.begin() as connection:
        _change(connection, term.c.letter % ONE_IN == 0, "frequent")
        _change(connection, term.c.letter % (highest // HANDFUL) == 1, "handful")
        for number in drawn:
            _change(connection, term.c.letter == number, f"drawn {number}")
        index.create(connection)
    analyze(engine, term)
    engine.dispose()


def _values_of(*batch: ColumnElement[bool]) -> Select[Any]:
    paths = union_all(
        *(select(literal(place).label("place"), literal(hash_of_path(f"field{place}")).label("path"))
          for place in range(VALUES))
    ).subquery()  # fmt: skip
    # Spread over all 64 bits, as hashes are.
    value = (letter.c.id * 2_654_435_761 % 2**32) * (2**31 - 1) + paths.c.place
    rows = select(letter.c.id, value, paths.c.path).select_from(letter.join(paths, literal(True)))
    return rows.where(*batch).order_by(letter.c.id, value)


def _change(connection: Connection, which: ColumnElement[bool], value: str) -> None:
    """Give the letters another value in :data:`COMMON`."""
    theirs = which, term.c.path == hash_of_path(COMMON)
    connection.execute(update(term).where(*theirs).values(value=hash_of_value(value)))


def _look(name: str, store_url: str, letters: int) -> dict[str, float]:
    fill(store_url, letters)
    drawn = random.Random(7).sample(range(1, letters // PATTERNS * PATTERNS), DRAWS)
    _add_values(store_url, drawn)
    engine = create_engine(store_url)
    size = _bytes(engine, all_tables=False)
    with engine.connect() as connection:
        found = select(letter.c.task_id).where(letter.c.id.in_(drawn))
        ids = connection.execute(found).scalars().all()
    engine.dispose()
    print(
        f"{name}, {letters:,} letters with {VALUES} values: {size / letters:,.0f} bytes for a letter"
    )
    store, slowest = SQLStore(store_url, timeout=60), dict[str, float]()
    for look, take in {**_looks(store, ids), **_searches(store, drawn)}.items():
        taken = sorted(_time(take) for _ in range(DRAWS))
        median, late = statistics.median(taken), taken[-1 - DRAWS // 100]
        print(f"  {look:28} p50 {median:5.1f} ms, p99 {late:5.1f} ms", flush=True)
        slowest[f"{name}, {look}, ms"] = late
    store.close()
    return slowest


def _looks(store: SQLStore, task_ids: Sequence[str]) -> Mapping[str, Look]:
    ids, now = itertools.cycle(task_ids), datetime.now(timezone.utc)
    return {
        "a page of letters": lambda: store.letters.find(Filter(), limit=PAGE),
        "a page of groups": lambda: store.groups.find(Filter(), now=now, limit=PAGE),
        "one letter": lambda: store.letters.get(next(ids)),
        "the beginning of an id": lambda: store.letters.match(next(ids)[:8]),
        "open letters, counted": lambda: store.counts.letters(Filter()),
        "those of two weeks, by task": lambda: store.counts.by_task(
            Filter(since=now - timedelta(days=14))
        ),
        "dlq stats": lambda: store.monitoring.stats(now),
        "the exporter": lambda: store.monitoring.measures(),
    }


def _searches(store: SQLStore, drawn: Sequence[int]) -> Mapping[str, Look]:
    numbers = itertools.cycle(drawn)
    values: Mapping[str, Callable[[], str]] = {
        "no letter": lambda: f"none {next(numbers)}",
        "one letter": lambda: f"drawn {next(numbers)}",
        f"{HANDFUL} letters": lambda: "handful",
        f"1 in {ONE_IN} letters": lambda: "frequent",
    }
    ways = {"--value": _by_value, "--arg": _by_argument}
    return {
        f"{option} in {found_in}": lambda value=value, wanted=wanted: store.letters.find(  # type: ignore[misc]
            wanted(value()), limit=PAGE
        )
        for found_in, value in values.items()
        for option, wanted in ways.items()
    }


def _by_value(value: str) -> Filter:
    return Filter(values=(value,))


def _by_argument(value: str) -> Filter:
    return Filter(args=(Argument(path=COMMON, value=value),))


def _time(take: Look) -> float:
    began = time.perf_counter()
    take()
    return (time.perf_counter() - began) * 1e3
