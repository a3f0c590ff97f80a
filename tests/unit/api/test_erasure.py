"""A condition holds for the messages that have the value, and for no others. Letters are recognised by
their messages, and those that cannot be read are named. Letters in the spool are counted, and stay there."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from support.factories import bomb, envelope, letter
from support.stores.archives import a_line

from celery_dlq.api.erasure import (
    Condition,
    Matcher,
    Meant,
    SpooledLetters,
    UnknownParameters,
    spooled,
)
from celery_dlq.errors import RepairError
from celery_dlq.model.letter import Outcome
from celery_dlq.spool.segment import encode
from celery_dlq.store.rows.rows import stored_id

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


def body(*args, **kwargs):
    return json.dumps([args, kwargs, {}]).encode()


def matcher(*conditions, ids=(), parameters=lambda _name: ["user_id"]):
    return Matcher(
        Meant(ids=tuple(map(stored_id, ids)), conditions=tuple(map(Condition.parse, conditions))),
        accepted=frozenset({"application/json"}), parameters=parameters,
    )  # fmt: skip


def letter_of(*args, **kwargs):
    return letter("a", envelope=envelope("a", body=body(*args, **kwargs)))


def test_all_conditions_must_hold():
    both = matcher("args.user_id=7", "kwargs.tenant=acme")
    assert both.is_letter(letter_of(7, tenant="acme"))
    assert not both.is_letter(letter_of(7, tenant="other"))
    assert not both.is_letter(letter_of(8, tenant="acme"))


def test_ids_are_compared_as_they_are_stored():
    long = "x" * 300
    assert matcher(ids=[long]).is_letter(letter(long))
    assert not matcher(ids=[long]).is_letter(letter("x" * 299))


def test_a_letter_whose_message_had_the_value_before_an_edit_is_meant():
    message = {"headers": "{}", "properties": "{}", "content_type": "application/json",
               "content_encoding": "utf-8", "exchange": "", "routing_key": "", "queue": ""}  # fmt: skip
    line = a_line(content_type="application/json")
    line["letter"] |= {"content_type": "application/json", "content_encoding": "utf-8"}
    line["content"]["body"] = "W1s4XSwge30sIHt9XQ=="  # [[8], {}, {}]
    assert not matcher("args[0]=7").is_line(line)
    line["changes"] = [{**message, "body": "W1s3XSwge30sIHt9XQ=="}]  # [[7], {}, {}]
    assert matcher("args[0]=7").is_line(line)


def test_the_task_that_the_message_names_says_what_its_arguments_are_called():
    asked = []
    matcher("args.user_id=7", parameters=asked.append).is_letter(
        letter("a", task="shop.other", envelope=envelope("a", body=body()))
    )
    assert asked == ["shop.charge"]


def test_a_letter_of_an_unknown_task_is_named():
    one = matcher("args.user_id=7", parameters=lambda _name: None)
    assert not one.is_letter(letter_of(7))
    assert "the names of its arguments are unknown" in one.unread["a"]


@pytest.mark.parametrize(
    "unreadable",
    [
        letter("a", envelope=envelope("a", body=b"\xff")),
        letter("a", envelope=envelope("a", content_type="application/x-python-serialize")),
        bomb(300_000_000, "a"),
    ],
    ids=["no text", "pickle", "bomb"],
)
def test_a_letter_that_cannot_be_read_is_named(unreadable):
    one = matcher("args.user_id=7")
    assert not one.is_letter(unreadable)
    assert one.unread["a"]


def test_by_id_nothing_is_read():
    one = matcher(ids=["a"])
    assert one.is_letter(letter("a", envelope=envelope("a", body=b"\xff")))
    assert one.unread == {}


MATCHER = Matcher(Meant(ids=("a",)), accepted=frozenset(), parameters=lambda _name: None)


def test_files_with_such_letters_are_named(tmp_path):
    outcome = Outcome(task_id="a", redrive=0, succeeded_at=datetime.now(timezone.utc), worker="w")
    (tmp_path / "1.jsonl").write_bytes(
        encode(letter("a")) + encode(letter("b")) + encode(outcome) + b"[" * 99_999 + b'\n{"torn'
    )
    (tmp_path / "2.jsonl").write_bytes(encode(letter("b")))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert [*spooled(tmp_path, MATCHER)] == [SpooledLetters(name="1.jsonl", letters=1, unread=2)]
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_spool_that_does_not_exist_holds_nothing(tmp_path):
    assert [*spooled(tmp_path / "none", MATCHER)] == []
