"""Column types that mean the same on SQLite, PostgreSQL and MySQL."""

from __future__ import annotations

from datetime import datetime, timezone

from sqlalchemy import BigInteger, DateTime, Integer, LargeBinary, String, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine


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

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            return value.replace(tzinfo=timezone.utc)
        return value.astimezone(timezone.utc)


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
