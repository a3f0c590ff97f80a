"""How often a killed worker loses a message that Redis has just given to it: workers with late
acknowledgement are killed at random moments under load, and each message is searched for, also among the
letters. Then a last worker runs the other messages, and those are counted that Redis still takes for given
to a killed worker."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from celery import Celery

from benchmarks.own_redis import own_redis
from benchmarks.side_by_side import make_store
from benchmarks.worker import wait
from celery_dlq import Filter
from celery_dlq.store.sql import SQLStore

#: Kills of each variant, and the longest life of a worker after its first task, in seconds.
KILLS, LIFE_S = int(os.environ.get("BENCH_KILLS", "200")), 0.3
#: Seconds that the last worker lives, at least.
LAST_S = 15
#: Messages that a worker finds at its start: more than it can run in its life.
FULL = 3_000

QUEUE = "takes"
_POOLS = {"prefork": ("--pool", "prefork", "-c", "2"), "solo": ("--pool", "solo")}


@dataclass(frozen=True)
class _Variant:
    base: str
    pool: str

    def __str__(self) -> str:
        return f"{self.base}, {self.pool}"


VARIANTS = [_Variant(base, pool) for pool in _POOLS for base in ("Task", "DLQTask")]


def run() -> dict[str, float]:
    """Losses per kill of each variant."""
    chosen = os.environ.get("BENCH_ONLY", "")
    print(f"killed workers on Redis, late acknowledgement, {KILLS} kills")
    return {str(one): _measure(one) for one in VARIANTS if chosen in str(one)}


def _measure(variant: _Variant) -> float:
    with tempfile.TemporaryDirectory() as directory, own_redis(directory) as url:
        make_store(_store_in(directory))
        client = redis.Redis.from_url(url)
        messages = _Messages(client, url)
        notes = Path(directory, "notes")
        notes.touch()
        for _ in range(KILLS):
            messages.fill()
            with _worker(variant, url, notes):
                time.sleep(random.uniform(0, LIFE_S))
        with _worker(variant, url, notes):
            time.sleep(LAST_S)
            wait(lambda: not messages.waiting())
            time.sleep(1)  # until the last tasks have ended
            held = client.hlen("unacked")
        ran = set(notes.read_text().split())
        letters = _letters(_store_in(directory))
        lost = messages.sent - ran - messages.kept() - letters
        client.close()
    often = f"one in {KILLS / len(lost):.1f} kills" if lost else "none"
    print(
        f"  {variant!s:28} {len(ran):8,} ran, {len(letters - ran)} are letters, "
        f"{len(lost):4} lost: {often}; {held} held",
        flush=True,
    )
    return len(lost) / KILLS


def _store_in(directory: str) -> str:
    return f"sqlite:///{directory}/store.sqlite3"


def _letters(store_url: str) -> set[str]:
    """The ids of the messages that became letters, because their worker was killed too often."""
    with contextlib.closing(SQLStore(store_url)) as store:
        return {letter.task_id for letter in store.letters.find(Filter(), limit=500).letters}


class _Messages:
    """The messages that were sent. They are alike except for their ids, and made of the first one's text."""

    def __init__(self, client: redis.Redis, url: str) -> None:
        self._client = client
        self.sent: set[str] = set()
        with Celery("sender", broker=url, set_as_current=False) as app:
            self._id = app.send_task("bench.note", queue=QUEUE).id
        item = client.rpop(QUEUE)
        assert isinstance(item, bytes)
        self._text = item.decode()
        self._tag = json.loads(self._text)["properties"]["delivery_tag"]

    def fill(self) -> None:
        """Fill the queue up."""
        ids = [str(uuid.uuid4()) for _ in range(FULL - self._client.llen(QUEUE))]
        texts = [
            self._text.replace(self._id, one).replace(self._tag, str(uuid.uuid4())) for one in ids
        ]
        if texts:
            self._client.lpush(QUEUE, *texts)
        self.sent.update(ids)

    def kept(self) -> set[str]:
        """The ids of the messages that Redis has, in a list or as given to a worker."""
        given = [json.loads(item)[0] for item in self._client.hvals("unacked")]
        return {one["headers"]["id"] for one in map(json.loads, self.waiting())} | {
            one["headers"]["id"] for one in given
        }

    def waiting(self) -> list[Any]:
        """What is in the lists."""
        lists = [QUEUE, *(f"{QUEUE}\x06\x16{step}" for step in (3, 6, 9))]
        return [item for key in lists for item in self._client.lrange(key, 0, -1)]


@contextlib.contextmanager
def _worker(variant: _Variant, url: str, notes: Path) -> Iterator[None]:
    """A worker that has begun to work, and is killed with all its processes at the end."""
    before = notes.stat().st_size
    pid = os.fork()
    if not pid:
        _become_worker(variant, url, notes)
    try:
        wait(lambda: notes.stat().st_size > before)
        yield
    finally:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _become_worker(variant: _Variant, url: str, notes: Path) -> None:
    """In a child of this process, because a worker that imports Celery again lives longer before its first
    task than after it."""
    try:
        os.setsid()
        os.chdir(notes.parent)
        silence = os.open("worker.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        os.environ.update(
            BENCH_BROKER=url, BENCH_QUEUE=QUEUE, BENCH_LATE="1", BENCH_NOTES=str(notes),
            BENCH_STORE=_store_in(str(notes.parent)) if variant.base == "DLQTask" else "",
            BENCH_LINES="50", BENCH_STREAK="0", BENCH_BUDGET="null", BENCH_BREAKER="0", BENCH_VISIBILITY="",
            BENCH_VALUES="24", BENCH_RECORDER="1",
        )  # fmt: skip
        app = importlib.import_module("benchmarks.app").app
        app.worker_main(
            ["worker", *_POOLS[variant.pool], "-l", "WARNING", "-n", f"{uuid.uuid4()}@%h",
             "--without-gossip", "--without-mingle"]
        )  # fmt: skip
    finally:
        os._exit(1)
