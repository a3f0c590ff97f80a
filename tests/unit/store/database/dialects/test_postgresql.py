from __future__ import annotations

import pytest
from sqlalchemy import any_, column, literal, select
from sqlalchemy.dialects import postgresql

from celery_dlq.store.database.dialects.postgresql import Many


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
