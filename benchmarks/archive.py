"""How fast closed letters move into an archive and back, and how large they are there, compared with a CSV
file of the same rows that PostgreSQL's COPY writes.

The archive's letters are also read back, compared and deleted from the store; those of COPY are not.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import zstandard
from celery import Celery
from sqlalchemy import create_engine, text

from benchmarks.letters import shop_letter
from benchmarks.rounds import measure, report
from benchmarks.services import fresh_postgres
from celery_dlq import DeadLetterQueue, Filter
from celery_dlq.archive.reading import Wanted
from celery_dlq.archive.segment import _LEVEL
from celery_dlq.model.states import CLOSED_STATES, State
from celery_dlq.store.base import Lease
from celery_dlq.store.tenure import Tenure, kept
from celery_dlq.upkeep.expiring import LEASE

ROUNDS, BATCH = 3, 1_000
LETTERS = int(os.environ.get("BENCH_LETTERS", "100000"))

_ROWS = """
COPY (
    SELECT letter.*, content.*, attempts.*
    FROM celery_dead_letter letter
    JOIN celery_dead_letter_content content ON content.id = letter.id
    CROSS JOIN LATERAL (
        SELECT json_agg(attempt) FROM celery_dead_letter_attempt attempt
        WHERE attempt.task_id = letter.task_id
    ) attempts
) TO STDOUT (FORMAT csv)
"""

_Opened = Callable[[Path], contextlib.AbstractContextManager[IO[bytes]]]


@dataclass
class _Bench:
    dlq: DeadLetterQueue
    store_url: str
    directory: Path
    #: Bytes of a letter, by the way in which it was written.
    sizes: dict[str, float]
    #: Letters per second of each restore.
    restores: list[float]


def run() -> dict[str, float]:
    """Median letters per second of each way, as a ratio to COPY into gzip."""
    with fresh_postgres() as store_url, tempfile.TemporaryDirectory() as directory:
        bench = _Bench(_queue(store_url, directory), store_url, Path(directory), {}, [])
        _fill(bench)
        ways: dict[str, Callable[[], float]] = {
            "COPY, gzip": partial(_copy, bench, "COPY, gzip", _gzipped),
            "COPY, zstd": partial(_copy, bench, "COPY, zstd", _zstd),
            "archive": partial(_archive, bench),
        }
        measured = {**measure(ways, ROUNDS), "restore": bench.restores}
        ratios = report(
            f"{LETTERS:,} letters, PostgreSQL, files in a directory", [measured],
            show=lambda rate: f"{rate:.0f} letters/s",
        )  # fmt: skip
        for way, size in bench.sizes.items():
            print(f"  {way:28} {size:10.0f} bytes for each letter")
        bench.dlq.store.close()
    return ratios


def _queue(store_url: str, directory: str) -> DeadLetterQueue:
    app = Celery("bench", set_as_current=False)
    (Path(directory) / "archive").mkdir()
    app.conf.update(dlq_store_url=store_url, dlq_archive_url=f"file://{directory}/archive")
    return DeadLetterQueue.of(app)


def _fill(bench: _Bench) -> None:
    """Save letters, and close them."""
    drawn, now = random.Random(2026), datetime.now(timezone.utc)
    for first in range(0, LETTERS, BATCH):
        bench.dlq.store.letters.save(
            [
                shop_letter(
                    drawn, now - timedelta(days=40) + timedelta(seconds=20 * (first + number))
                )
                for number in range(min(BATCH, LETTERS - first))
            ]
        )
    still_open = Filter(states=frozenset({State.DEAD}))
    bench.dlq.store.closing.discard(still_open, who="bench", why="done", now=now)
    engine = create_engine(bench.store_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("VACUUM ANALYZE"))
    engine.dispose()


def _copy(bench: _Bench, way: str, opened: _Opened) -> float:
    path, engine = bench.directory / "letters.csv", create_engine(bench.store_url)
    began = time.perf_counter()
    with engine.connect() as connection, opened(path) as file:
        driver: Any = connection.connection.driver_connection
        with driver.cursor().copy(_ROWS) as rows:
            for some in rows:
                file.write(some)
    rate = LETTERS / (time.perf_counter() - began)
    engine.dispose()
    bench.sizes[way] = path.stat().st_size / LETTERS
    return rate


def _gzipped(path: Path) -> contextlib.AbstractContextManager[IO[bytes]]:
    level = 6  # that of the program
    return cast("IO[bytes]", gzip.open(path, "wb", compresslevel=level))


@contextlib.contextmanager
def _zstd(path: Path) -> Iterator[Any]:
    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    with path.open("wb") as file, compressor.stream_writer(file) as writer:
        yield writer


def _archive(bench: _Bench) -> float:
    """Move all letters into the archive; then bring them back, for the next round."""
    dlq, known = bench.dlq, bench.dlq.store.archiving.totals().size
    with _lease(dlq) as lease:
        began = time.perf_counter()
        moved = dlq.archive.move(Filter(states=CLOSED_STATES), lease, who="bench")
        rate = moved / (time.perf_counter() - began)
    assert moved == LETTERS
    bench.sizes["archive"] = (dlq.store.archiving.totals().size - known) / LETTERS
    began = time.perf_counter()
    restored = dlq.archive.restore(dlq.archive.find(Wanted()), who="bench").restored
    bench.restores.append(LETTERS / (time.perf_counter() - began))
    assert len(restored) == LETTERS
    return rate


@contextlib.contextmanager
def _lease(dlq: DeadLetterQueue) -> Iterator[Lease]:
    tenure = Tenure(lambda: dlq.store, LEASE, "bench")
    lease = tenure.prolong()
    assert lease is not None
    with kept(tenure, lease):
        yield lease
    tenure.end()
