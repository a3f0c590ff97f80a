"""Fills a store with millions of letters: a few thousand are saved, and SQL copies them over the days."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    case,
    cast,
    create_engine,
    delete,
    func,
    insert,
    literal,
    literal_column,
    select,
    text,
    update,
)  # fmt: skip
from sqlalchemy.schema import AddConstraint, DropConstraint

from benchmarks.letters import shop_letter
from celery_dlq.store.database import tables
from celery_dlq.store.sql import SQLStore

#: Letters that are saved, before they are copied.
PATTERNS = 2_000
#: Copies of each that are made at once, because a database sorts them on its disk.
AT_ONCE = 100
#: Days over which the letters have died.
DAYS = 60
#: One in this many letters is open; the others were resolved an hour after they died.
OPEN = 11

letter, content, attempt = tables.letter, tables.content, tables.attempt

_FILLED = letter, content, attempt, tables.group, tables.cell, tables.trend, tables.arrival

_copy = Table("bench_copy", MetaData(), Column("number", BigInteger, primary_key=True))


def fill(store_url: str, letters: int) -> None:
    """Fill the empty store with this many letters, rounded down to a multiple of :data:`PATTERNS`. In SQLite,
    all of them are saved, and open."""
    copies = letters // PATTERNS
    if store_url.startswith("sqlite"):
        _save_all(store_url, copies)
        return
    _save_patterns(store_url, timedelta(days=DAYS) / copies)
    engine = create_engine(store_url)
    with engine.begin() as connection:
        _resolve(connection)
        _drop_indexes(connection)
        _make_copies(connection, copies, step_s=DAYS * 86_400 // copies)
        _create_indexes(connection)
        count_again(connection)
    analyze(engine)
    engine.dispose()


def _save_all(store_url: str, batches: int) -> None:
    drawn, store = random.Random(2026), SQLStore(store_url, timeout=60, value_limit=0)
    first, step = datetime.now(timezone.utc) - timedelta(days=DAYS), timedelta(days=DAYS) / batches
    for batch in range(batches):
        moments = (first + step * (batch + number / PATTERNS) for number in range(PATTERNS))
        store.letters.save([shop_letter(drawn, moment) for moment in moments])
    store.close()


def analyze(engine: Engine, *named: Table) -> None:
    """Let the database learn the sizes of these tables, or of those that are filled here: on this server, it
    may not do that by itself."""
    kept = ", ".join(table.name for table in named or _FILLED)
    if engine.dialect.name == "sqlite":
        statement = "ANALYZE"
    else:
        statement = f"VACUUM ANALYZE {kept}" if is_postgres(engine) else f"ANALYZE TABLE {kept}"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(statement))


def is_postgres(bind: Engine | Connection) -> bool:
    """Whether it is a PostgreSQL; otherwise it is a MariaDB."""
    return bind.dialect.name == "postgresql"


def _save_patterns(store_url: str, span: timedelta) -> None:
    drawn, store = random.Random(2026), SQLStore(store_url, timeout=60)
    first = datetime.now(timezone.utc) - timedelta(days=DAYS)
    store.letters.save(
        [shop_letter(drawn, first + span * (number / PATTERNS)) for number in range(PATTERNS)]
    )
    store.close()


def _resolve(connection: Connection) -> None:
    closed_at = _later(connection, letter.c.last_failed_at, literal(3_600))
    are_closed = letter.c.id % OPEN != 0
    connection.execute(
        update(letter).where(are_closed).values(state="resolved", closed_at=closed_at)
    )
    assert connection.execute(select(func.max(letter.c.id))).scalar_one() == PATTERNS


def _later(connection: Connection, moment: Any, seconds: ColumnElement[Any]) -> ColumnElement[Any]:
    if is_postgres(connection):
        return moment + seconds * literal_column("interval '1 second'")  # type: ignore[no-any-return]
    return func.timestampadd(literal_column("second"), seconds, moment)


def _drop_indexes(connection: Connection) -> None:
    """Building an index of all rows is quicker than adding row by row."""
    for index in letter.indexes:
        index.drop(connection)
    for constraint in letter.constraints:
        if isinstance(constraint, UniqueConstraint):
            connection.execute(DropConstraint(constraint))


def _create_indexes(connection: Connection) -> None:
    for constraint in letter.constraints:
        if isinstance(constraint, UniqueConstraint):
            connection.execute(AddConstraint(constraint))
    for index in letter.indexes:
        index.create(connection)


def _make_copies(connection: Connection, copies: int, *, step_s: int) -> None:
    _copy.create(connection)
    connection.execute(insert(_copy), [{"number": number} for number in range(1, copies)])
    for first in range(1, copies, AT_ONCE):
        for table in (letter, content, attempt):
            _copy_rows(
                connection, table, step_s, _copy.c.number.between(first, first + AT_ONCE - 1)
            )
    _copy.drop(connection)
    if is_postgres(connection):
        highest = select(func.max(letter.c.id)).scalar_subquery()
        sequence = func.pg_get_serial_sequence(letter.name, "id")
        connection.execute(select(func.setval(sequence, highest)))


def _copy_rows(
    connection: Connection, table: Table, step_s: int, which: ColumnElement[bool]
) -> None:
    columns = {column.name: _copied(connection, column, step_s) for column in table.c}
    rows = select(*columns.values()).select_from(table.join(_copy, which))
    patterns = select(letter.c.task_id).where(letter.c.id <= PATTERNS)
    originals = table.c.task_id.in_(patterns) if table is attempt else table.c.id <= PATTERNS
    rows = rows.where(originals)
    # In the order of the key, in which a database with clustered rows writes each page once.
    key = columns["task_id"] if table is attempt else columns["id"]
    connection.execute(insert(table).from_select(list(columns), rows.order_by(key)))


def _copied(connection: Connection, column: Column[Any], step_s: int) -> ColumnElement[Any]:
    if column.name == "id":
        return column + _copy.c.number * PATTERNS
    if column.name == "task_id":
        return func.md5(func.concat(column, _copy.c.number))
    if column.name.endswith("_at"):
        return _later(connection, column, _copy.c.number * step_s)
    return column


def count_again(connection: Connection) -> None:
    """Make the counts by group and by cause those of all letters."""
    connection.execute(delete(tables.group))
    connection.execute(delete(tables.cell))
    count, seen = (
        func.count(),
        (func.min(letter.c.first_failed_at), func.max(letter.c.last_failed_at)),
    )
    by_group = letter.c.fingerprint, letter.c.task, letter.c.exception_type
    groups = select(
        *by_group,
        func.min(letter.c.message),
        _in("dead"),
        _in("resolved"),
        _in("discarded"),
        count,
        *seen,
    )
    names = [
        "fingerprint", "task", "exception_type", "message", "open_count", "resolved_count",
        "discarded_count", "total_count", "first_seen_at", "last_seen_at",
    ]  # fmt: skip
    connection.execute(insert(tables.group).from_select(names, groups.group_by(*by_group)))
    by_cell = letter.c.task, letter.c.queue, letter.c.reason, letter.c.exception_type
    number = cast(func.min(letter.c.id), String(64))
    cells = select(number, *by_cell, _in("dead"), count, literal(0), literal(0), seen[0])
    names = [
        "id", "task", "queue", "reason", "exception_type", "open_count", "arrived_count",
        "succeeded_count", "failed_count", "first_seen_at",
    ]  # fmt: skip
    connection.execute(insert(tables.cell).from_select(names, cells.group_by(*by_cell)))
    _count_by_time(connection)


def _count_by_time(connection: Connection) -> None:
    """Make the counts by hour and by minute those of all letters."""
    hour, minute = _cut(connection, "hour"), _cut(connection, "minute")
    trend = select(letter.c.fingerprint, hour, func.count(), _in("dead"))
    arrivals = select(minute, letter.c.task, letter.c.exception_type, func.count())
    by_kind = letter.c.task, letter.c.exception_type
    for table, counted in (
        (tables.trend, trend.group_by(letter.c.fingerprint, hour)),
        (tables.arrival, arrivals.group_by(minute, *by_kind)),
    ):
        connection.execute(delete(table))
        columns = [column.name for column in table.columns]
        # In the order of time, in which a store gets them.
        in_order = counted.order_by(hour if table is tables.trend else minute)
        connection.execute(insert(table).from_select(columns, in_order))


def _cut(connection: Connection, unit: str) -> ColumnElement[Any]:
    at = letter.c.last_failed_at
    if is_postgres(connection):
        return func.date_trunc(literal_column(f"'{unit}'"), at, literal_column("'UTC'"))
    minute = literal_column("0") if unit == "hour" else func.minute(at)
    return func.timestamp(func.date(at), func.maketime(func.hour(at), minute, literal_column("0")))


def _in(state: str) -> ColumnElement[Any]:
    return func.sum(case((letter.c.state == state, 1), else_=0))
