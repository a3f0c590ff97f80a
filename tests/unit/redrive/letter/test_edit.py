"""A message as a text that a person edits, and the edit that is made of it."""

import json
import pickle
from dataclasses import replace
from datetime import datetime, timezone
from decimal import Decimal

import pytest
from celery import Celery
from kombu.utils import json as celery_json
from support.factories import T0, bomb, envelope, letter

from celery_dlq.base.redact import Redactor
from celery_dlq.base.unpack import SHOWN_LIMIT
from celery_dlq.errors import PayloadError, RepairError
from celery_dlq.model.states import State
from celery_dlq.redrive.letter.edit import (
    contents_to_edit,
    digest_of,
    make_edit,
    read_part,
    read_text,
    text_of,
    text_to_edit,
)

HEADERS = {
    "id": "0d3f", "task": "shop.charge", "retries": 2, "group": "g", "x-dlq-attempts": "[]",
    "argsrepr": "(17,)", "tenant": "acme",
}  # fmt: skip


@pytest.fixture
def app():
    return Celery("unit", set_as_current=False)


@pytest.fixture
def edit(app):
    def edit(made=None, **changes):
        return make_edit(app, made or message(), changes, Redactor(), who="ann", at=T0)

    return edit


def message(args=(17,), kwargs=None, **changes):
    body = celery_json.dumps([list(args), kwargs or {}, {"chord": None}]).encode()
    return letter(envelope=envelope(body=body, headers=HEADERS), **changes)


def test_the_text_has_the_changeable_parts(app):
    text = text_to_edit(app, message((17,), {"password": "hunter2"}))
    assert json.loads(text) == {
        "args": [17], "kwargs": {"password": "hunter2"}, "headers": {"tenant": "acme"},
    }  # fmt: skip
    assert text.startswith('{\n  "args"')


def test_values_outside_json_come_back_unchanged(app, edit):
    values = {"when": datetime(2026, 1, 2, tzinfo=timezone.utc), "price": Decimal("1.10")}
    made = message((b"\xff",), values)
    contents = read_text(text_to_edit(app, made))
    assert (contents["args"], contents["kwargs"]) == ([b"\xff"], values)
    with pytest.raises(RepairError, match="Nothing was changed"):
        edit(made, **contents)


def test_the_edit_that_is_saved(edit):
    made = message((17,), {"currency": "EUX", "token": "a"})
    saved = edit(made, kwargs={"currency": "EUR", "token": "b"})
    assert json.loads(saved.after.body) == [
        [17],
        {"currency": "EUR", "token": "b"},
        {"chord": None},
    ]
    assert saved.before == made.envelope
    assert saved.after.headers == HEADERS
    assert saved.kwargs == {"currency": "EUR", "token": "[redacted]"}
    assert (saved.who, saved.at) == ("ann", T0)
    assert saved.diff.splitlines() == [
        '- kwargs.currency = "EUX"', '+ kwargs.currency = "EUR"',
        "- kwargs.token = [redacted]", "+ kwargs.token = [redacted]",
    ]  # fmt: skip


def test_headers_that_are_left_out_are_removed_unless_they_stay(edit):
    saved = edit(headers={"lang": "py"})
    assert saved.after.headers == {
        **{name: value for name, value in HEADERS.items() if name != "tenant"}, "lang": "py",
    }  # fmt: skip
    assert saved.diff == '- headers.tenant = "acme"\n+ headers.lang = "py"'


@pytest.mark.parametrize("header", ["id", "task", "group", "eta", "x-dlq-letter"])
def test_fixed_headers_stay(edit, header):
    with pytest.raises(RepairError, match=f"headers.{header}"):
        edit(headers={header: "other"})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"args": {}}, "args are of type dict"),
        ({"kwargs": []}, "kwargs must be a table"),
        ({"headers": []}, "headers must be a table"),
        ({"kwargs": {"x": object()}}, "json cannot encode it"),
        ({}, "Nothing was changed"),
        ({"args": [17]}, "Nothing was changed"),
    ],
)
def test_nonsense_is_refused(edit, changes, words):
    with pytest.raises(RepairError, match=words):
        edit(**changes)


@pytest.mark.parametrize("state", [state for state in State if state is not State.DEAD])
def test_only_dead_letters_are_edited(app, edit, state):
    made = message(state=state)
    with pytest.raises(RepairError, match=f"is {state.value}; only"):
        text_to_edit(app, made)
    with pytest.raises(RepairError, match=f"is {state.value}; only"):
        edit(made, args=[5])


def test_a_body_that_cannot_be_read(app):
    with pytest.raises(PayloadError, match="cannot be decoded"):
        text_to_edit(app, letter(envelope=envelope(body=b"{")))


def test_a_body_that_is_too_large_is_not_opened(app, edit):
    for act in (lambda made: text_to_edit(app, made), lambda made: edit(made, args=[5])):
        with pytest.raises(PayloadError, match="unpacks to more than 8 MiB"):
            act(bomb(SHOWN_LIMIT))


BILLION = "\n".join(
    ["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10))]
)
ITSELF: list = []
ITSELF.append(ITSELF)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (f"- []\n- {{{BILLION.replace(chr(10), ', ')}}}\n- {{}}".encode(), "application/x-yaml"),
        (pickle.dumps([ITSELF, {}, {}]), "application/x-python-serialize"),
    ],
    ids=["billion laughs", "holds itself"],
)  # fmt: skip
def test_a_body_that_says_more_values_than_can_be_written(app, body, content_type):
    app.conf.accept_content = ["yaml", "pickle"]
    sent = envelope(body=body, content_type=content_type, content_encoding="utf-8")
    with pytest.raises(PayloadError, match="unfolds to more than 2,000,000 values"):
        text_to_edit(app, letter(envelope=sent))


def test_values_that_json_cannot_encode_need_a_repair(app):
    app.conf.accept_content = ["pickle"]
    sent = envelope(
        body=pickle.dumps([[{1, 2}, slice(1)], {}, {}]),
        content_type="application/x-python-serialize", content_encoding="binary",
    )  # fmt: skip
    with pytest.raises(RepairError, match="--repair"):
        text_to_edit(app, letter(envelope=sent))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not JSON"), ("{", "is not JSON"), ("[]", "must be a JSON object"),
        ('{"args": [], "kwargs": {}}', "must be a JSON object"),
        ('{"args": [], "kwargs": {}, "headers": {}, "more": 1}', "must be a JSON object"),
    ],
)  # fmt: skip
def test_a_wrong_text_is_refused(text, words):
    with pytest.raises(RepairError, match=words):
        read_text(text)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("args", "[1,", "is not JSON: .*line 1 column 4"),
        ("args", "{}", "must be a JSON list"),
        ("kwargs", "[]", "must be a JSON object"),
        ("headers", "1", "must be a JSON object"),
    ],
)
def test_a_wrong_part_is_refused(name, text, words):
    with pytest.raises(RepairError, match=words):
        read_part(name, text)


def test_parts_are_written_and_read_like_the_whole(app):
    when = datetime(2026, 1, 2, tzinfo=timezone.utc)
    contents = contents_to_edit(app, message((when,), {"a": b"\xff"}))
    assert contents == {"args": [when], "kwargs": {"a": b"\xff"}, "headers": {"tenant": "acme"}}
    assert {name: read_part(name, text_of(value)) for name, value in contents.items()} == contents


def test_a_digest_is_the_same_for_the_same_message_only():
    same = envelope(body=b"[[17], {}, {}]")
    assert digest_of(same) == digest_of(envelope(body=b"[[17], {}, {}]"))
    others = [
        {"body": b"[[18], {}, {}]"},
        {"headers": {"id": "0d3f"}},
        {"queue": "x"},
        {"properties": {}},
    ]
    assert digest_of(same) not in {digest_of(replace(same, **other)) for other in others}


def test_a_key_cannot_make_up_lines_of_the_diff(edit):
    key = "x\n+ kwargs.amount = 1\r\u2028"
    saved = edit(message((17,), {key: 1}), kwargs={key: 2})
    assert saved.diff.splitlines() == [
        r'- kwargs."x\n+ kwargs.amount = 1\r\u2028" = 1',
        r'+ kwargs."x\n+ kwargs.amount = 1\r\u2028" = 2',
    ]
