from __future__ import annotations

import math
from datetime import datetime, timezone
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.factories import T0, attempt, envelope, letter

from celery_dlq.errors import StoreError
from celery_dlq.model.letter import Outcome
from celery_dlq.store.base import Filter

pytestmark = pytest.mark.on_servers

HOSTILE = [
    "nul \x00 inside",
    "lone \ud800 surrogate",
    "emoji 🐰 and \U0010ffff",
    "quotes ' \" ` \\ and ; -- %s %(x)s :name",
    "\x01\x1b[31m\r\n\t\x7f",
    "blanks at the end   ",
    "",
    " ",
    "x" * 5_000,
    "ş" * 5_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_no_text_is_refused_anywhere(store, text):
    hostile = letter(
        text,
        attempt(exception_type=text, message=text, rule=text, worker=text),
        task=text, exception_type=text, message=text, traceback=text, fingerprint=text, worker=text,
        release=text, root_id=text, parent_id=text, group_id=text, correlation_id=text, canvas=text,
        tags=(text,), args=[text], kwargs={text: text},
        envelope=envelope(
            text, content_type=text, content_encoding=text, exchange=text, routing_key=text,
            queue=text, headers={text: text}, properties={text: [text]},
        ),
    )  # fmt: skip
    assert store.letters.save([hostile]).arrived == 1
    assert store.letters.save([hostile]).known == 1
    found = store.letters.get(text)
    assert (found.args, found.kwargs, found.tags) == ([text], {text: text}, (text,))
    assert found.envelope.headers == {text: text}
    assert found.envelope.properties == {text: [text]}
    assert found.attempt_count == 1
    assert store.letters.record_outcomes([outcome(text)]) == 1


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_no_text_is_refused_as_a_filter(store, text):
    store.letters.save([letter("0d3f")])
    wanted = Filter(
        ids=(text,), task=text, exception=text, queue=text, group=text, worker=text, search=text,
        release=text, tag=text, root=text, rule=text,
    )  # fmt: skip
    assert store.letters.find(wanted).letters in ((), store.letters.find(Filter()).letters)
    store.groups.find(Filter(task=text, exception=text, group=text), now=T0)
    assert store.letters.match(text) in ([], ["0d3f"])
    store.closing.discard(wanted, who=text, why=text, now=T0)


def test_ids_that_differ_in_blanks_and_case_only_are_different_letters(store):
    ids = ["a", "A", "a ", "a  ", "á", "a\t"]
    assert store.letters.save([letter(item) for item in ids]).arrived == len(ids)
    assert [store.letters.get(item).correlation_id.rstrip(" ") for item in ids] == [
        "a",
        "A",
        "a",
        "a",
        "á",
        "a\t",
    ]
    assert store.monitoring.stats(T0).depth == len(ids)


def test_long_ids_that_differ_at_the_end_are_different_letters(store):
    store.letters.save([letter("x" * 400 + "1"), letter("x" * 400 + "2", message="second")])
    assert store.letters.get("x" * 400 + "2").message == "second"
    assert store.monitoring.stats(T0).depth == 2


def test_tasks_that_differ_in_blanks_only_are_counted_together(store):
    store.letters.save([letter("a", task="shop.charge"), letter("b", task="shop.charge ")])
    assert store.monitoring.stats(T0).by_task == {"shop.charge": 2}


@pytest.mark.clear("it compares letters with their key")
def test_a_megabyte_of_everything(store):
    text, quoted, body = "ü" * 1_000_000, '"' * 500_000, bytes(range(256)) * 4096
    big = letter(
        "big", message=text, traceback=text, args=[quoted], kwargs={"a": quoted},
        envelope=envelope("big", body=body, headers={"argsrepr": quoted, "raw": body}),
    )  # fmt: skip
    store.letters.save([big])
    assert store.letters.get("big") == big.with_(attempt_count=1)


@pytest.mark.parametrize("body", [b"", b"\x00", b"\xff\xfe\x00\x80'\"\\%s"], ids=repr)
def test_a_body_comes_back_byte_by_byte(store, body):
    store.letters.save([letter("0d3f", envelope=envelope(body=body))])
    assert store.letters.get("0d3f").envelope.body == body


def test_numbers_and_types_that_json_does_not_have(store):
    headers = {
        "raw": b"\x00\xff", "when": datetime(2026, 1, 2, tzinfo=timezone.utc),
        "price": Decimal("1.10"), "table": {"nested": [b"x", None, True, 2**70]},
    }  # fmt: skip
    store.letters.save(
        [letter("0d3f", args=[math.nan, math.inf], envelope=envelope(headers=headers))]
    )
    found = store.letters.get("0d3f")
    assert found.envelope.headers == headers
    assert found.args == ["nan", "inf"]


def test_forged_numbers_are_bounded(store):
    forged = letter("0d3f", attempt(10**30, 10**30, delay_s=math.nan), redrive_count=10**30)
    store.letters.save([forged])
    found = store.letters.get("0d3f")
    assert found.redrive_count == found.attempts[0].number == 2**31 - 1
    assert found.attempts[0].delay_s is None


def test_a_moment_keeps_its_microseconds_and_loses_its_zone(store):
    there = datetime.fromisoformat("2026-03-29T02:30:00.000001+05:30")
    store.letters.save([letter("0d3f", attempt(failed_at=there))])
    found = store.letters.get("0d3f")
    assert found.last_failed_at == found.attempts[0].failed_at == there
    assert found.last_failed_at.tzinfo is timezone.utc


def test_a_moment_without_a_zone_is_refused_rather_than_guessed(store):
    naive = datetime(2026, 1, 2)  # noqa: DTZ001 - what the test is about
    with pytest.raises(StoreError, match="needs a time zone"):
        store.letters.save([letter("0d3f", attempt(failed_at=naive))])


texts = st.text(st.characters(exclude_categories=[]), max_size=40)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(task_id=texts, text=texts, body=st.binary(max_size=200))
def test_any_text_and_any_bytes_go_in_and_are_found_again(store, task_id, text, body):
    store.letters.save([letter(task_id, message=text, args=[text], envelope=envelope(body=body))])
    found = store.letters.get(task_id)
    assert found is not None
    assert [item.task_id for item in store.letters.find(Filter(ids=(task_id,))).letters] == [
        found.task_id
    ]


def outcome(task_id: str) -> Outcome:
    return Outcome(task_id=task_id, redrive=0, succeeded_at=T0, worker=task_id)
