from __future__ import annotations

from datetime import timedelta, timezone

import pytest
from factories import T0
from sqlalchemy import any_, column, literal, select
from sqlalchemy.dialects import mysql, postgresql, sqlite

from celery_dlq.store.columns import Many, Moment

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


@pytest.mark.parametrize(
    ("element", "values", "written"),
    [
        ("BIGINT", [1, -2, 2**62], "{1,-2,4611686018427387904}"),
        ("BIGINT", [], "{}"),
        ("VARCHAR", [], "{}"),
        ("VARCHAR", ["a", "", "NULL", "é ,{}"], '{"a","","NULL","é ,{}"}'),
        ("VARCHAR", ['b"\\c', "\\"], r'{"b\"\\c","\\"}'),
    ],
)
def test_many_values_are_one_text_whose_parameter_has_the_type(element, values, written):
    dialect = postgresql.psycopg.dialect()
    asked = select(column("x") == any_(literal(values, Many(element)))).compile(dialect=dialect)
    assert f"x = ANY (%(param_1)s::{element}[])" in str(asked)
    assert Many(element).bind_processor(dialect)(values) == written
