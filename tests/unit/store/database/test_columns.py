from __future__ import annotations

from datetime import timedelta, timezone

import pytest
from sqlalchemy.dialects import mysql, postgresql, sqlite
from support.factories import T0

from celery_dlq.store.database.columns import Moment

LATER = T0.astimezone(timezone(timedelta(hours=5)))


@pytest.mark.parametrize(
    ("driver", "given"),
    [
        (sqlite, f"{T0:%Y-%m-%d %H:%M:%S.%f}"),
        (postgresql.psycopg, T0),
        (postgresql.psycopg, LATER),
        (mysql.pymysql, T0.replace(tzinfo=None)),
    ],
)
def test_a_moment_is_read_in_utc_whatever_the_driver_gives(driver, given):
    dialect = driver.dialect()
    read = Moment().dialect_impl(dialect).result_processor(dialect, None)
    assert read(given) == T0
    assert read(given).tzinfo is timezone.utc
    assert read(None) is None
