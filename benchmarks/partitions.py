"""Partitions of the large tables by the letter's id, compared with deleting in batches, in plain SQL.

Both remove the closed letters of the older half of a store. The batches delete a thousand letters at a time
from three tables, as retention does. With partitions, letters and their indexes are deleted in the same
batches, because the task id is unique over all of them. The contents and the attempts of letters that stay
are copied out of each partition, which is then dropped.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise

from sqlalchemy import (
    Connection,
    Engine,
    TextClause,
    bindparam,
    create_engine,
    delete,
    select,
    text,
)

from benchmarks.filled import analyze, attempt, content, fill, is_postgres, letter
from benchmarks.services import fresh_mariadb, fresh_postgres

LETTERS = int(os.environ.get("BENCH_LETTERS", "500000"))
BATCH = 1_000
#: Partitions of the older half; as many are left.
PARTS = 5

_WIDTH = LETTERS // 2 // PARTS
_HALF = PARTS * _WIDTH


@dataclass
class _Taken:
    """What one way took."""

    #: Seconds of each step, by table.
    steps: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    #: Bytes of the server's log, and of the tables in the end.
    log: int = 0
    size: int = 0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.steps[name].append(time.perf_counter() - began)


def run() -> None:
    """Print what each way takes on PostgreSQL and on MariaDB."""
    for title, opened in (("PostgreSQL", fresh_postgres), ("MariaDB", fresh_mariadb)):
        with opened() as store_url:
            fill(store_url, LETTERS)
            compare(title, store_url)


def compare(title: str, store_url: str) -> None:
    """Remove the same letters in both ways, from copies of the tables for the partitions."""
    engine = create_engine(store_url)
    _partition(engine)
    analyze(engine)
    expired = _expired(engine)
    ways: dict[str, Callable[[_Taken], None]] = {
        "partitions": partial(_drop_partitions, engine),
        "batches": partial(_delete, engine, expired),
    }
    print(f"{title}: {len(expired):,} of {LETTERS:,} letters removed")
    for name, way in ways.items():
        taken, written = _Taken(), _written(engine)
        way(taken)
        taken.log = _written(engine) - written
        for step, seconds in taken.steps.items():
            median, most = 1_000 * statistics.median(seconds), 1_000 * max(seconds)
            print(
                f"  {name:12} {step:28} {sum(seconds):8.1f} s in {len(seconds)} steps: "
                f"median {median:.0f} ms, most {most:.0f} ms"
            )
        print(f"  {name:12} log {taken.log >> 20} MB")
    for tables in (
        (content.name, attempt.name),
        ("part_content", "part_attempt", "kept_content", "kept_attempt"),
    ):
        print(f"  {', '.join(tables)}: {sum(_size(engine, one) for one in tables) >> 20} MB")
    engine.dispose()


def _expired(engine: Engine) -> list[tuple[int, str]]:
    closed = select(letter.c.id, letter.c.task_id).where(
        letter.c.id <= _HALF, letter.c.state == "resolved"
    )
    with engine.connect() as connection:
        return [(row.id, row.task_id) for row in connection.execute(closed.order_by(letter.c.id))]


def _delete(engine: Engine, expired: list[tuple[int, str]], taken: _Taken) -> None:
    rest = iter(expired)
    statements = {
        "contents": delete(content).where(content.c.id.in_(bindparam("ids", expanding=True))),
        "attempts": delete(attempt).where(
            attempt.c.task_id.in_(bindparam("task_ids", expanding=True))
        ),
        "letters": delete(letter).where(letter.c.id.in_(bindparam("ids", expanding=True))),
    }
    while some := list(islice(rest, BATCH)):
        ids, task_ids = [one for one, _ in some], sorted(one for _, one in some)
        with engine.connect() as connection:
            for name, statement in statements.items():
                with taken.step(name):
                    given = {"task_ids": task_ids} if name == "attempts" else {"ids": ids}
                    connection.execute(statement, given)
            with taken.step("commit"):
                connection.commit()


def _partition(engine: Engine) -> None:
    """Copies of the two tables, with the letter's id in their keys, and the tables for letters that stay."""
    bounds = [*range(_WIDTH, LETTERS, _WIDTH)]
    with engine.begin() as connection:
        make = _partition_postgres if is_postgres(engine) else _partition_mariadb
        make(connection, bounds)
        connection.execute(
            text(f"INSERT INTO part_content SELECT * FROM {content.name} ORDER BY id")
        )
        connection.execute(
            text(
                f"INSERT INTO part_attempt SELECT l.id AS letter_id, a.* FROM {attempt.name} a "
                f"JOIN {letter.name} l ON l.task_id = a.task_id ORDER BY l.id"
            )
        )


_ATTEMPT_KEY = "PRIMARY KEY (letter_id, redrive, number, failed_at)"


def _partition_postgres(connection: Connection, bounds: list[int]) -> None:
    for name in ("part", "kept"):
        by_range = " PARTITION BY RANGE" if name == "part" else ""
        of_content, of_attempt = (
            (f"{by_range} (id)", f"{by_range} (letter_id)") if by_range else ("", "")
        )
        connection.execute(
            text(f"CREATE TABLE {name}_content (LIKE {content.name}, PRIMARY KEY (id)){of_content}")
        )
        connection.execute(
            text(
                f"CREATE TABLE {name}_attempt "
                f"(letter_id bigint, LIKE {attempt.name}, {_ATTEMPT_KEY}){of_attempt}"
            )
        )
    edges = ["MINVALUE", *map(str, bounds), "MAXVALUE"]
    for table in ("part_content", "part_attempt"):
        for number, (first, end) in enumerate(pairwise(edges)):
            connection.execute(
                text(
                    f"CREATE TABLE {table}_{number} PARTITION OF {table} FOR VALUES FROM ({first}) TO ({end})"
                )
            )


def _partition_mariadb(connection: Connection, bounds: list[int]) -> None:
    ranges = ", ".join(
        f"PARTITION p{number} VALUES LESS THAN ({bound})"
        for number, bound in enumerate([*bounds, "MAXVALUE"])
    )
    for name in ("part", "kept"):
        connection.execute(text(f"CREATE TABLE {name}_content LIKE {content.name}"))
        connection.execute(text(f"CREATE TABLE {name}_attempt LIKE {attempt.name}"))
        connection.execute(
            text(
                f"ALTER TABLE {name}_attempt ADD COLUMN letter_id bigint NOT NULL FIRST, "
                f"DROP PRIMARY KEY, ADD {_ATTEMPT_KEY}"
            )
        )
    connection.execute(text(f"ALTER TABLE part_content PARTITION BY RANGE (id) ({ranges})"))
    connection.execute(text(f"ALTER TABLE part_attempt PARTITION BY RANGE (letter_id) ({ranges})"))


def _drop_partitions(engine: Engine, taken: _Taken) -> None:
    for number in range(PARTS):
        for table, key in (("content", "id"), ("attempt", "letter_id")):
            with engine.begin() as connection:
                with taken.step(f"{table}s: copy what stays"):
                    connection.execute(_copy_out(connection, table, key, number))
                with taken.step(f"{table}s: drop"):
                    connection.execute(text(_drop(connection, table, number)))


def _copy_out(connection: Connection, table: str, key: str, number: int) -> TextClause:
    part = (
        f"part_{table}_{number}"
        if is_postgres(connection)
        else f"part_{table} PARTITION (p{number})"
    )
    return text(
        f"INSERT INTO kept_{table} SELECT p.* FROM {part} p JOIN {letter.name} l ON l.id = p.{key} "
        "WHERE l.state <> 'resolved'"
    )


def _drop(connection: Connection, table: str, number: int) -> str:
    if is_postgres(connection):
        return f"DROP TABLE part_{table}_{number}"
    return f"ALTER TABLE part_{table} DROP PARTITION p{number}"


def _size(engine: Engine, table: str) -> int:
    """Bytes on disk of a table and its partitions."""
    if is_postgres(engine):
        size = text(
            "SELECT pg_total_relation_size(cast(:name AS regclass)) + coalesce(sum("
            "pg_total_relation_size(relid)), 0) FROM pg_partition_tree(cast(:name AS regclass)) WHERE isleaf"
        )
    else:
        size = text(
            "SELECT coalesce(sum(file_size), 0) FROM information_schema.innodb_sys_tablespaces "
            "WHERE name = concat(database(), '/', :name) OR name LIKE concat(database(), '/', :name, '#%')"
        )
    with engine.connect() as connection:
        return int(connection.execute(size, {"name": table}).scalar_one())


def _written(engine: Engine) -> int:
    """Bytes that the server has written to its log, for all of its databases."""
    with engine.connect() as connection:
        if is_postgres(connection):
            written = text("SELECT pg_current_wal_lsn() - '0/0'")
            return int(connection.execute(written).scalar_one())
        written = text("SHOW GLOBAL STATUS LIKE 'Innodb_os_log_written'")
        return int(connection.execute(written).one()[1])
