from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.codec import encode_table
from celery_dlq.written_table import OPENING, WrittenHeaders, WrittenTable, write_headers

HEADERS = {
    "lang": "py", "task": "shop.charge", "id": "0d3f", "group": None, "expires": None,
    "retries": 3, "eta": "2026-11-21T12:00:00+00:00", "argsrepr": "('\"id\"',)",
}  # fmt: skip

names = st.sampled_from([*OPENING, "lang", "x-dlq-copy", "$bytes"]) | st.text(max_size=4)
values = st.none() | st.integers() | st.text(max_size=6) | st.binary(max_size=3) | st.lists(names)


@given(st.dictionaries(names, values, max_size=8))
def test_headers_come_back_as_they_went(headers):
    written = WrittenHeaders(write_headers(headers))
    assert written == headers
    assert headers == written
    assert (dict(written), len(written)) == (headers, len(headers))
    assert {name: written[name] for name in headers} == headers


@given(st.dictionaries(names, values, max_size=8), names)
def test_what_is_not_in_a_text_is_not_in_its_headers(headers, name):
    assert (name in WrittenHeaders(write_headers(headers))) == (name in headers)


@given(st.dictionaries(names, values, max_size=8))
def test_an_opening_says_what_the_headers_say(headers):
    opening = WrittenHeaders(write_headers(headers)).opening
    if opening is not None:
        assert opening.groups() == (headers["task"], headers["id"])
        rest = WrittenTable("{" + opening.string[opening.end() :].removeprefix(","))
        assert rest == {name: value for name, value in headers.items() if name not in OPENING}
        assert not any(name.startswith(("x-", "redelivered", "compression")) for name in rest)


def test_nearly_all_messages_have_an_opening():
    opening = WrittenHeaders(write_headers(HEADERS)).opening
    assert opening is not None
    assert opening.groups() == ("shop.charge", "0d3f")


@pytest.mark.parametrize(
    "other",
    [
        {"task": "ü"}, {"task": 5}, {"id": 'a"b'}, {"retries": "0"}, {"retries": -1}, {"eta": 5},
        {"expires": 0.5}, {"x-dlq-redrive": 1}, {"x-death": []}, {"redelivered": True},
        {"compression": "zlib"}, {"stamps": {"a": b"bytes"}},
    ],
    ids=str,
)  # fmt: skip
def test_where_something_needs_care_there_is_no_opening(other):
    written = WrittenHeaders(write_headers({**HEADERS, **other}))
    assert written.opening is None
    assert written == {**HEADERS, **other}
    assert all(name in written for name in other)


def test_what_another_hand_has_written_has_no_opening():
    written = WrittenHeaders(encode_table({name: HEADERS[name] for name in (*OPENING, "lang")}))
    assert written.opening is None
    assert (written["task"], written["lang"]) == ("shop.charge", "py")


def test_the_task_and_what_is_missing_are_known_without_reading(monkeypatch):
    monkeypatch.setattr("celery_dlq.written_table.decode_plain", lambda _text: 1 / 0)
    written = WrittenHeaders(write_headers(HEADERS))
    assert written["task"] == "shop.charge"
    assert written.get("task") == "shop.charge"
    assert "x-dlq-compressed" not in written


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))]
)
def test_copies_are_equal(copied):
    for written in (WrittenHeaders(write_headers(HEADERS)), WrittenTable('{"a":{"b":[1]}}')):
        assert copied(written) == written
        assert repr(copied(written)) == repr(dict(written))
