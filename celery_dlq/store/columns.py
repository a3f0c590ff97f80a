"""Column types that mean the same on SQLite, PostgreSQL and MySQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import BigInteger, DateTime, Integer, LargeBinary, String, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType


class Moment(TypeDecorator[datetime]):
    """A point in time to the microsecond: aware in, UTC out. MySQL and SQLite keep no zone, so
    UTC is what they are given."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[datetime]:
        if dialect.name == "mysql":
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(DateTime(timezone=dialect.name == "postgresql"))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a stored moment needs a time zone; use datetime.now(timezone.utc)")
        moment = value if value.tzinfo is timezone.utc else value.astimezone(timezone.utc)
        return moment if dialect.name == "postgresql" else moment.replace(tzinfo=None)

    def result_processor(
        self, dialect: Dialect, coltype: object
    ) -> Callable[[Any], datetime | None]:
        # Of a process_result_value(), the base class makes two calls for each value of thousands.
        read = self.impl_instance.result_processor(dialect, coltype)
        return _in_utc if read is None else lambda value: _in_utc(read(value))


def _in_utc(value: datetime | None) -> datetime | None:
    if value is None or value.tzinfo is timezone.utc:
        return value
    if value.tzinfo is None:
        return value.replace(tzinfo=timezone.utc)
    return value.astimezone(timezone.utc)


class Many(UserDefinedType[Sequence[Any]]):
    """Many numbers, or texts, as one parameter for PostgreSQL: an array, written here as it reads one. The
    driver takes seven times as long, value by value.

    :param element: ``BIGINT`` or ``VARCHAR``.
    """

    cache_ok = True
    # So the parameter itself has the type. A text that is cast would be read anew for each row.
    render_bind_cast = True

    def __init__(self, element: str) -> None:
        self.element = element

    def get_col_spec(self, **_options: Any) -> str:
        return f"{self.element}[]"

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str]:
        written = str if self.element == "BIGINT" else _quoted
        return lambda values: f"{{{','.join(map(written, values))}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'


def name(width: int = 255) -> String:
    """A short text compared byte by byte, so that a prefix is a range of the index and equality
    does not depend on the server's language."""
    return (
        String(width)
        .with_variant(String(width, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(width, charset="utf8mb4", collation="utf8mb4_bin"), "mysql")
    )


#: Text of any length that is stored (:data:`~celery_dlq.store.rows.TEXT_LIMIT`); MySQL's TEXT
#: ends at 64 kB.
LONG_TEXT = Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql")

#: A message body; MySQL's BLOB ends at 64 kB.
BYTES = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql")

#: A surrogate key. SQLite counts up by itself only in a column declared INTEGER.
BIG_ID = BigInteger().with_variant(Integer(), "sqlite")
