"""Bodies as JSON, and tasks that were linked to the failure of a message."""

from __future__ import annotations

import enum
import functools
import json
import math
import uuid
from dataclasses import dataclass
from datetime import date, datetime, time, timezone
from decimal import Decimal

import pytest
from celery import Celery
from hypothesis import given
from hypothesis import strategies as st
from kombu.utils.json import dumps
from support.factories import bomb, envelope

from celery_dlq.base.codec import read_json
from celery_dlq.base.unpack import SHOWN_LIMIT
from celery_dlq.redrive.broker.publisher import write_json
from celery_dlq.redrive.letter.payload import linked_to, parameters_of


def with_body(**embed):
    return envelope(body=json.dumps([[], {}, embed]).encode())


def test_errbacks_are_named():
    linked = with_body(errbacks=[{"task": "shop.alert"}, {"task": "shop.undo"}, 5])
    assert linked_to(linked).tasks == ("shop.alert", "shop.undo")
    assert linked_to(with_body(errbacks=None)).tasks == ()


def test_errbacks_are_read_from_json_only():
    assert linked_to(envelope(body=b"{")) == ((), "")
    assert linked_to(envelope(content_type="application/x-python-serialize")) == ((), "")


def test_a_body_that_is_too_large_is_not_opened_for_errbacks():
    packed = linked_to(bomb(SHOWN_LIMIT).envelope)
    assert packed == ((), "its body unpacks to more than 8 MiB, so it was not opened")
    plain = envelope(body=b'[["' + b"0" * SHOWN_LIMIT + b'"], {}, {}]')
    assert linked_to(plain) == ((), "its body is larger than 8 MiB, so it was not opened")


numbers = st.integers(-(2**70), 2**70) | st.floats()
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=9) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=9,
)
small = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=9,
)


@given(small)
def test_json_is_read_as_python_reads_it(value):
    body = json.dumps(value).encode()
    assert read_json(body) == json.loads(body)


def test_what_only_python_reads_is_read():
    (number, infinite, half), _ = read_json(b'[[NaN, -Infinity, "\\ud800"], {}]')
    assert math.isnan(number)
    assert infinite == -math.inf
    assert half == "\ud800"


def test_numbers_beyond_64_bits_are_still_numbers():
    assert read_json(b"[18446744073709551616]") == [pytest.approx(2**64)]


def test_of_two_values_of_one_name_the_last_one_is_read():
    assert read_json(b'{"a": 1, "b": 2, "a": 3}') == {"a": 3, "b": 2}


@pytest.mark.parametrize("body", [b"", b"[", b"\xff", b"[1] 2"])
def test_what_is_no_json_is_an_error(body):
    with pytest.raises(ValueError):
        read_json(body)


class Color(enum.Enum):
    RED = "red"


class Size(str, enum.Enum):
    SMALL = "small"


class Number(int): ...


class Text(str):
    __slots__ = ()


@dataclass
class Point:
    x: int


class Own:
    def __json__(self):
        return {"own": 1}


def assert_like_kombu(value) -> None:
    # Read by one hand, and written again: so NaN is equal to itself, and 1 is not to 1.0 or True.
    message = {"headers": value}
    assert json.dumps(json.loads(write_json(message))) == json.dumps(json.loads(dumps(message)))


@given(values)
def test_a_message_says_what_kombu_writes(value):
    assert_like_kombu(value)


@pytest.mark.parametrize(
    "value",
    [
        math.nan, math.inf, -math.inf, -0.0, 1e16, 1e-7, 5e-324, 2**63, 2**64 - 1, 2**64, -(2**63) - 1,
        10**400, "\ud800", "\x00", "\x7f", "é\u2028😀", "</script>", (1, (2,)), b"text", b"\xff",
        datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone.utc), date(2026, 1, 2),
        time(3, 4), Decimal("1.50"), uuid.UUID(int=7), Size.SMALL, Number(7), Text("text"), Own(),
        {1: "a"}, {None: 1}, {True: 1}, {1.5: 1}, {Text("name"): 1}, {"\ud800": 1}, {"a": [{"b": math.nan}]},
    ],
)  # fmt: skip
def test_what_orjson_would_write_in_another_way_is_written_as_kombu_writes_it(value):
    assert_like_kombu(value)
    assert_like_kombu({"a": 1, "b": [value]})


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, Color.RED, Point(1), {b"name": 1}, {(1, 2): 3}]
)
def test_what_kombu_does_not_write_is_an_error(value):
    with pytest.raises(TypeError):
        dumps({"headers": value})
    with pytest.raises(TypeError):
        write_json({"headers": value})


def test_what_nests_deeply_is_written():
    deep: object = 1
    for _ in range(300):
        deep = {"a": [deep]}
    assert_like_kombu(deep)


def test_the_parameters_of_a_task_are_the_positional_ones():
    app = Celery(set_as_current=False)

    @app.task(name="one", bind=True)
    def one(self, user_id, email="", *rest, only=1, **more):
        raise NotImplementedError

    app.finalize()
    assert parameters_of(app, "one") == ["user_id", "email"]
    assert parameters_of(app, "other") is None


def test_a_parameter_that_the_base_class_fills_is_not_one_of_a_message():
    app = Celery(set_as_current=False)

    @app.task(name="one", lazy=False)
    def one(request, password):
        raise NotImplementedError

    one.__header__ = functools.partial(one.__header__, object())
    assert parameters_of(app, "one") == ["password"]


def test_a_decorated_function_has_the_parameters_that_it_names():
    app = Celery(set_as_current=False)

    def body(user_id, email):
        raise NotImplementedError

    @app.task(name="one", lazy=False)
    @functools.wraps(body)
    def one(*args, **kwargs):
        raise NotImplementedError

    assert parameters_of(app, "one") == ["user_id", "email"]
