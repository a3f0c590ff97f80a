"""The cost of encrypted contents: failing tasks, redrives, lists and searches with and without it, side by
side; and a rotation of a full store while tasks fail."""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from functools import partial

import redis

from benchmarks.capture import PAYLOAD, failing
from benchmarks.failing import failing as failing_steadily
from benchmarks.filled import fill
from benchmarks.letters import shop_letter
from benchmarks.redrive import redrive
from benchmarks.rounds import compare
from benchmarks.services import BROKER, fresh_postgres
from benchmarks.worker import KEYS, Way
from celery_dlq import Filter
from celery_dlq.base.sealing import Keyring, read_keys
from celery_dlq.store.sql import SQLStore

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "10"))
TASKS = 3_000
#: Letters that are rotated, and those of the store that is looked at.
LETTERS = int(os.environ.get("BENCH_LETTERS", "1000000"))
LOOKED_AT = 20_000
#: Failures per second during the rotation, and seconds before it.
RATE, BEFORE_S = 50.0, 60.0

RINGS: Mapping[str, Keyring | None] = {"clear": None, "encrypted": Keyring(read_keys(KEYS))}


def run() -> dict[str, float]:
    """Median ratios of the encrypted ways to the clear ones; at least 0.9 for capture."""
    ratios = {"capture": _capture(), "redrive": _redrive(), **_looks()}
    _rotate()
    return ratios


def _capture() -> float:
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        client = stack.enter_context(redis.Redis.from_url(BROKER))
        ways = {
            name: Way(stack.enter_context(fresh_postgres()), encrypted=name == "encrypted")
            for name in ("clear", "clear again", "encrypted")
        }
        return compare(
            f"failing tasks, prefork -c 2 on Redis, {TASKS} at a time, PostgreSQL",
            {
                name: failing(stack, client, way, directory, TASKS, PAYLOAD)
                for name, way in ways.items()
            },
            rounds=ROUNDS, show=lambda rate: f"{rate:.0f} tasks/s",
        )["encrypted"]  # fmt: skip


def _redrive() -> float:
    with contextlib.ExitStack() as stack:
        return compare(
            "redrive, Redis + PostgreSQL",
            {
                name: partial(redrive, BROKER, stack.enter_context(fresh_postgres()), ring is not None)
                for name, ring in RINGS.items()
            },
            rounds=ROUNDS, show=lambda rate: f"{rate:.0f} letters/s",
        )["encrypted"]  # fmt: skip


def _looks() -> dict[str, float]:
    """A page of letters, one letter, a search by value and the groups, in times per second."""
    with contextlib.ExitStack() as stack:
        stores = {
            name: stack.enter_context(
                contextlib.closing(SQLStore(stack.enter_context(fresh_postgres()), ring=ring))
            )
            for name, ring in RINGS.items()
        }
        drawn = random.Random(49)
        letters = [shop_letter(drawn, datetime.now(timezone.utc)) for _ in range(LOOKED_AT)]
        for store in stores.values():
            for start in range(0, LOOKED_AT, 500):
                store.letters.save(letters[start : start + 500])
        ids = [letter.task_id for letter in letters]
        looks: Mapping[str, Callable[[SQLStore], object]] = {
            "list": lambda store: store.letters.find(Filter(), limit=50),
            "show": lambda store: store.letters.get(drawn.choice(ids)),
            "search by value": lambda store: store.letters.find(
                Filter(values=(str(drawn.choice(letters).args[0]["number"]),)), limit=50
            ),
            "groups": lambda store: store.groups.find(Filter(), now=datetime.now(timezone.utc)),
        }
        return {
            name: compare(
                f"{name}, {LOOKED_AT:,} letters, PostgreSQL",
                {way: partial(_rate, look, store) for way, store in stores.items()},
                rounds=ROUNDS, show=lambda rate: f"{rate:.0f} times/s",
            )["encrypted"]
            for name, look in looks.items()
        }  # fmt: skip


def _rate(look: Callable[[SQLStore], object], store: SQLStore) -> float:
    began, count = time.perf_counter(), 0
    while time.perf_counter() < began + 0.5:
        look(store)
        count += 1
    return count / (time.perf_counter() - began)


def _rotate() -> None:
    """Encrypt a full store with the next key, while tasks fail."""
    with fresh_postgres() as store_url:
        fill(store_url, LETTERS)
        first, second = read_keys({"first": b"1" * 32}), read_keys({"second": b"2" * 32})
        # The copied letters have no values that could be found, and get none.
        _rotated(store_url, Keyring(first), value_limit=0)
        ring = Keyring({**second, **first})
        with failing_steadily(store_url, RATE, ring) as failures:
            rested = time.monotonic()
            time.sleep(BEFORE_S)
            began = time.monotonic()
            rows = _rotated(store_url, ring)
            ended = time.monotonic()
        took = ended - began
        print(
            f"rotation of {LETTERS:,} letters while {RATE:.0f} tasks fail in a second, PostgreSQL: "
            f"{rows:,} rows in {took:.0f} s, {LETTERS / took:.0f} letters/s"
        )
        for when, span in (("before", (rested, began)), ("during", (began, ended))):
            cuts = statistics.quantiles(failures.latencies([span]), n=100)
            print(
                f"  until a failure is stored, {when}: median {cuts[49] * 1000:.1f} ms, "
                f"95 % {cuts[94] * 1000:.1f} ms, 99 % {cuts[98] * 1000:.1f} ms"
            )
        assert not failures.refused, failures.refused


def _rotated(store_url: str, ring: Keyring, value_limit: int = 24) -> int:
    """Rotate to the first key of ``ring``; returns how many rows were sealed again."""
    with contextlib.closing(
        SQLStore(store_url, timeout=60, ring=ring, value_limit=value_limit)
    ) as store:
        rows = store.keys.rotate(who="bench")
        assert not store.keys.left(), store.keys.counts()
        return rows
