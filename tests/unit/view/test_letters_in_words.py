"""The meanings of reasons, and arguments by their names."""

import pytest
from support.factories import letter

from celery_dlq.model.states import Reason
from celery_dlq.view.letters import MEANINGS, argument_values, named, named_arguments


def test_each_reason_has_a_meaning():
    assert set(MEANINGS) == set(Reason)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("0", "order_id"),
        ("1.street", "address.street"),
        ("2", "2"),
        ("currency", "currency"),
        ("9" * 5_000, "9" * 5_000),
        ("\u0660", "\u0660"),
    ],
)
def test_a_position_becomes_the_name_of_its_parameter(path, expected):
    assert named(path, ["order_id", "address"]) == expected


def test_a_keyword_argument_with_a_number_as_its_name_is_not_renamed():
    found = letter(args=[], kwargs={"0": "x"})
    assert argument_values(found, ["order_id"], 9) == [("0", "x")]


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ([17, [1]], {"a": 2}, [("order_id", 17), ("args[1]", [1]), ("a", 2)]),
        (None, None, []),
        ("[1, 2", {}, [("args", "[1, 2"), ("kwargs", {})]),
    ],
)
def test_arguments_by_name(args, kwargs, expected):
    assert named_arguments(letter(args=args, kwargs=kwargs), ["order_id"]) == expected
