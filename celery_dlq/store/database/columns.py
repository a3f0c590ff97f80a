"""Column types that mean the same on each database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, TypeVar

from sqlalchemy import BigInteger, DateTime, LargeBinary, String, Text
from sqlalchemy.engine import Dialect as SQLAlchemyDialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from celery_dlq.store.database.dialects import SUPPORTED, dialect_named
from celery_dlq.store.database.dialects.dialect import Dialect

T = TypeVar("T", bound=TypeEngine[Any])


class Moment(TypeDecorator[datetime]):
    """A point in time to the microsecond. It takes aware times in any zone, and returns them in UTC. A
    database that keeps no time zone gets UTC."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: SQLAlchemyDialect) -> TypeEngine[datetime]:
        return dialect.type_descriptor(dialect_named(dialect.name).moment)

    def process_bind_param(
        self, value: datetime | None, dialect: SQLAlchemyDialect
    ) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a stored moment needs a time zone; use datetime.now(timezone.utc)")
        moment = value if value.tzinfo is timezone.utc else value.astimezone(timezone.utc)
        return moment if dialect_named(dialect.name).keeps_zones else moment.replace(tzinfo=None)

    def result_processor(
        self, dialect: SQLAlchemyDialect, coltype: object
    ) -> Callable[[Any], datetime | None]:
        # For process_result_value(), the base class would make two calls for each of thousands of values.
        read = self.impl_instance.result_processor(dialect, coltype)
        return _in_utc if read is None else lambda value: _in_utc(read(value))


def _in_utc(value: datetime | None) -> datetime | None:
    if value is None or value.tzinfo is timezone.utc:
        return value
    if value.tzinfo is None:
        return value.replace(tzinfo=timezone.utc)
    return value.astimezone(timezone.utc)


def name(width: int = 255) -> String:
    """A short text that is compared byte by byte. So a prefix is a range of the index, and equality does not
    depend on the server's collation."""
    return _by_dialect(String(width), lambda dialect: dialect.short_text(width))


def _by_dialect(usual: T, of: Callable[[Dialect], TypeEngine[Any]]) -> T:
    for dialect in SUPPORTED:
        usual = usual.with_variant(of(dialect), dialect.name)
    return usual


#: A text of up to :data:`~celery_dlq.store.rows.rows.TEXT_LIMIT` characters.
LONG_TEXT = _by_dialect(Text(), lambda dialect: dialect.long_text)

#: A message body.
BYTES = _by_dialect(LargeBinary(), lambda dialect: dialect.blob)

#: A surrogate key.
BIG_ID = _by_dialect(BigInteger(), lambda dialect: dialect.big_id)
