from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.base.codec import (
    LEVELS,
    decode_table,
    dump_json,
    encode_table,
    quick_json,
    read_record,
    record_of,
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=[]))
    | st.binary()
    | st.datetimes()
    | st.datetimes(timezones=st.just(timezone.utc))
    | st.decimals(allow_nan=False)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.integers() | st.binary(), inner, max_size=4)
        | st.dictionaries(st.sampled_from(["$bytes", "$table", "$float"]), inner, max_size=2)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), values, max_size=5))
def test_headers_come_back_as_they_went(table):
    assert decode_table(encode_table(table)) == table


@given(st.dictionaries(st.text(), values, max_size=5))
def test_the_text_is_ascii_that_every_database_takes(table):
    text = encode_table(table)
    assert text.isascii()
    assert "\x00" not in text


@given(st.dictionaries(st.text(), values, max_size=5))
def test_what_is_written_quickly_is_read_as_the_same(table):
    text = quick_json(table)
    assert text is None or decode_table(text.decode()) == table


def test_what_would_be_read_as_another_value_is_not_written_quickly():
    for value in (math.nan, math.inf, {"$table": []}, [{"$bytes": "eA=="}], (1,), Decimal(1)):
        assert quick_json({"x": value}) is None
    assert quick_json({"x": [{"$price": 1.5}], "y": None}) == b'{"x":[{"$price":1.5}],"y":null}'


def test_types_are_kept_apart():
    table = {
        "bytes": b"\x00\xff",
        "aware": datetime(2026, 1, 2, tzinfo=timezone.utc),
        "naive": datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001 - AMQP's timestamps are
        "decimal": Decimal("1.10"),
        "float": 1.0,
        "int": 1,
        "true": True,
    }
    found = decode_table(encode_table(table))
    assert {key: type(value) for key, value in found.items()} == {
        key: type(value) for key, value in table.items()
    }
    assert str(found["decimal"]) == "1.10"


def test_numbers_that_json_does_not_know():
    found = decode_table(encode_table({"a": math.nan, "b": [math.inf, -math.inf]}))
    assert math.isnan(found["a"])
    assert found["b"] == [math.inf, -math.inf]


def test_a_header_that_looks_like_a_tag_is_not_taken_for_one():
    table = {"one": {"$bytes": "not base64!"}, "two": {"$bytes": 1, "other": 2}, "$float": "x"}
    assert decode_table(encode_table(table)) == table


def test_a_table_that_is_a_tag_itself():
    assert decode_table(encode_table({"$bytes": "plain"})) == {"$bytes": "plain"}


class Foreign:
    def __str__(self) -> str:
        return "foreign"


def test_an_object_that_no_broker_delivers_becomes_text():
    assert decode_table(encode_table({"a": Foreign()})) == {"a": "foreign"}


def test_a_tuple_becomes_a_list_as_on_the_wire():
    assert decode_table(encode_table({"shadow": (1, 2)})) == {"shadow": [1, 2]}


def test_a_bottomless_header_is_stored_all_the_same():
    deep: dict = {}
    for _ in range(100_000):
        deep = {"a": deep}
    assert isinstance(decode_table(encode_table({"deep": deep})), dict)


@pytest.mark.parametrize("make", [lambda inner: {"a": inner}, lambda inner: [inner]])
@pytest.mark.parametrize("depth", [LEVELS - 2, LEVELS, 300, 950])
def test_written_values_can_be_read_with_little_stack_left(make, depth):
    deep = {}
    for _ in range(depth):
        deep = make(deep)
    text = encode_table({"deep": deep})
    read = with_little_stack(lambda: decode_table(text))
    assert set(read) == {"deep"}
    assert (read == {"deep": deep}) == (depth < LEVELS)


def with_little_stack(call, left=300):
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back

    def descend(levels):
        return descend(levels - 1) if levels else call()

    return descend(sys.getrecursionlimit() - depth - left)


def test_a_number_of_ten_thousand_digits_does_not_keep_a_table_from_being_written():
    assert decode_table(encode_table({"a": 10**10_000, "b": 1}))["b"] == 1


@pytest.mark.parametrize("text", ["{}", '{"a":{"$":1}}', '{"$unknown":1}'])
def test_plain_json_is_read_as_it_is(text):
    assert encode_table(decode_table(text)) == text


@pytest.mark.parametrize(
    "value",
    [
        {"nan": float("nan")}, {"x": b"\x00\xff"}, {"when": datetime(2026, 1, 1, tzinfo=timezone.utc)},
        ["\ud800", "\x00"], {("a", 1): object()},
    ],
)  # fmt: skip
def test_json_text_is_ascii_and_strict_for_any_value(value):
    text = dump_json(value)
    assert text.isascii()
    json.loads(text, parse_constant=lambda name: pytest.fail(name))


def test_json_of_a_cycle_ends():
    cycle = []
    cycle.append(cycle)
    assert json.loads(dump_json(cycle))


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Part:
    number: int
    colour: Colour = Colour.RED


@dataclass(frozen=True)
class Whole:
    name: str
    at: datetime | None
    took: timedelta
    first: Part
    parts: tuple[Part, ...]
    colours: frozenset[Colour]
    names: tuple[str, ...] = ()
    best: Colour | None = None


@pytest.mark.parametrize(
    "whole",
    [
        Whole(
            "a", datetime(2026, 3, 1, 12, tzinfo=timezone.utc), timedelta(seconds=1.5), Part(1),
            (Part(2), Part(3, Colour.BLUE)), frozenset(Colour), ("x", "y"), Colour.BLUE,
        ),
        Whole("b", None, timedelta(), Part(0), (), frozenset()),
    ],
    ids=["full", "empty"],
)  # fmt: skip
def test_a_dataclass_comes_back_from_json(whole):
    assert read_record(Whole, json.loads(json.dumps(record_of(whole)))) == whole


def test_a_record_has_the_fields_that_are_asked_for():
    part = Part(7, Colour.BLUE)
    assert record_of(part) == {"number": 7, "colour": "blue"}
    assert record_of(part, "colour") == {"number": 7}
    assert read_record(Part, {"number": 7}) == Part(7), "other fields get their defaults"


def test_a_record_that_does_not_fit_is_refused():
    for data in ({}, {"number": 1, "shape": "round"}, {"number": 1, "colour": "green"}):
        with pytest.raises((TypeError, ValueError)):
            read_record(Part, data)
