"""A condition holds for the messages that have the value, and for no others."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest

from celery_dlq.erasure.condition import Condition, UnknownParameters
from celery_dlq.errors import RepairError

PARAMETERS = ["user_id", "email"]


def holds(text, *args, parameters=PARAMETERS, headers=None, **kwargs):
    parts = {"args": list(args), "kwargs": kwargs, "headers": headers or {}}
    return Condition.parse(text).holds(parts, parameters)


@pytest.mark.parametrize(
    ("text", "args", "kwargs"),
    [
        ("args.user_id=7", [7], {}),
        ("args.user_id=7", [], {"user_id": 7}),
        ("args.email=jo@x.org", [7, "jo@x.org"], {}),
        ("args.email=jo@x.org", [7], {"email": "jo@x.org"}),
        ("args[0]=7", [7], {}),
        ("args.0=7", [7], {}),
        ("kwargs.user.id=7", [], {"user": {"id": 7}}),
        ("args.user_id.id=7", [{"id": 7}], {}),
        ('kwargs["user id"]=7', [], {"user id": 7}),
    ],
)
def test_the_value_is_found_at_its_place(text, args, kwargs):
    assert holds(text, *args, **kwargs)


@pytest.mark.parametrize(
    ("text", "args", "kwargs"),
    [
        ("args.user_id=7", [8], {}),
        ("args.user_id=7", [8, 7], {}),
        ("args.user_id=7", [7], {"user_id": 8}),
        ("args.other=7", [7], {}),
        ("args.email=7", [7], {}),
        ("args[1]=7", [7], {}),
        ("kwargs.user_id=7", [7], {}),
        ("kwargs.user_id.id=7", [], {"user_id": 7}),
        ("kwargs.user_id=7", [], {"user_id": 77}),
        ("kwargs.name=Jo", [], {"name": "Joan"}),
    ],
)
def test_another_value_or_place_is_not_taken_for_it(text, args, kwargs):
    assert not holds(text, *args, **kwargs)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("7", 7),
        ("7", 7.0),
        ("7", "7"),
        ('"7"', "7"),
        ("7", [5, 7]),
        ("7", (5, [7])),
        ("[5, 7]", [5, 7]),
        ("true", True),
        ("null", None),
        ("9.50", Decimal("9.50")),
        ("12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
    ],
)
def test_a_value_is_recognised_in_the_forms_that_it_may_have(written, found):
    assert holds(f"kwargs.x={written}", x=found)


@pytest.mark.parametrize(
    ("written", "found"),
    [("1", True), ("true", 1), ("7", [77]), ("7", {"id": 7}), ("null", "null "), ("7", None)],
)
def test_similar_values_are_told_apart(written, found):
    assert not holds(f"kwargs.x={written}", x=found)


def test_a_text_in_quotes_is_not_the_number():
    assert not holds('kwargs.x="7"', x=8)


def test_headers_are_searched():
    assert holds("headers.tenant=acme", headers={"tenant": "acme"})


def test_the_name_of_a_positional_argument_of_an_unknown_task_cannot_be_told():
    with pytest.raises(UnknownParameters):
        holds("args.user_id=7", 7, parameters=None)


def test_an_unknown_task_without_positional_arguments_can_be_told():
    assert holds("args.user_id=7", parameters=None, user_id=7)
    assert not holds("args.user_id=7", parameters=None, user_id=8)
    assert not holds("args.user_id=7", parameters=None)


def test_an_object_that_cannot_be_compared_is_another_value():
    class Hostile:
        def __eq__(self, other):
            raise RuntimeError

        def __str__(self):
            raise RuntimeError

        __hash__ = None

    assert not holds("kwargs.x=7", x=Hostile())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("user_id=7", "--where user_id=7: begin with args, kwargs, headers"),
        ("kwargs=7", "--where kwargs=7: begin with args"),
        ("kwargs.user_id", "--where kwargs.user_id: write it like"),
        ("kwargs.user_id=", "--where kwargs.user_id=: write a value after the equals sign"),
        ("kwargs.user_id= ", "write a value after the equals sign"),
    ],
)
def test_a_condition_that_is_none_is_refused(text, said):
    with pytest.raises(RepairError, match=said.replace("[", r"\[")):
        Condition.parse(text)


def test_the_place_and_the_text_are_known():
    condition = Condition.parse('kwargs.user["e.mail"]="jo@x.org"')
    assert (condition.place, condition.text) == ("kwargs.user.e.mail", "jo@x.org")
    assert Condition.parse("args[0]=4711").text == "4711"


def test_a_list_of_any_depth_is_searched():
    nested = [7]
    for _ in range(5_000):
        nested = [nested]
    assert holds("kwargs.x=7", x=nested)
    assert not holds("kwargs.x=8", x=nested)


def test_a_place_may_be_inside_a_tuple():
    assert holds("args[0][1]=7", (5, 7))
    assert holds("args.0.1=7", (5, 7))
