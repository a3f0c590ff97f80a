from __future__ import annotations

import json
from datetime import timedelta

import pytest
from sqlalchemy import select, update
from support.factories import T0, envelope, letter
from support.stores import redriving
from support.stores.statements import statements_of

from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.store.database import tables
from celery_dlq.store.rows import bodies
from celery_dlq.store.rows.bodies import read_bodies, within


@pytest.fixture
def small(monkeypatch):
    """The store reads only a few bytes of bodies together."""
    monkeypatch.setattr(within, "__defaults__", (100_000,))


def read(store, *task_ids: str) -> tuple[str, int]:
    letters, count = store.letters.read(task_ids)
    return "".join(one.task_id for one in letters), count


@pytest.mark.clear("it compares letters with their key")
def test_letters_are_read_in_order_with_their_messages(store):
    whole = {name: letter(name, tags=("x",)) for name in "abc"}
    store.letters.save([*whole.values()])
    letters, count = store.letters.read(["c", "gone", "a"])
    assert count == 3
    assert letters == [
        whole[name].with_(attempts=(), traceback="", attempt_count=1) for name in "ca"
    ]


def test_as_many_as_fit_and_one_at_least(store, small):
    sizes = {"a": 60_000, "b": 30_000, "c": 20_000, "d": 200_000}
    store.letters.save(
        [letter(name, envelope=envelope(name, body=b"x" * size)) for name, size in sizes.items()]
    )
    assert read(store, "a", "b", "gone", "c", "d") == ("ab", 3)
    assert read(store, "c", "d") == ("c", 1)
    assert read(store, "d", "a") == ("d", 1)
    assert read(store, "gone") == ("", 1)
    assert read(store) == ("", 0)
    (large,), _ = store.letters.read(["d"])
    assert len(large.envelope.body) == 200_000


@pytest.mark.clear("it reads or writes the tables itself")
def test_a_body_that_is_too_large_to_be_read_with_so_many_letters_is_read_by_itself(
    store, monkeypatch
):
    apart = []

    def read_apart(connection, sizes):
        apart.extend(sizes)
        return read_bodies(connection, apart)

    monkeypatch.setattr("celery_dlq.store.rows.bodies.TOGETHER", 30_000)
    monkeypatch.setattr(bodies, "read_bodies", read_apart)
    sizes = {"a": 10_000, "b": 10_001, "c": 30_000}
    store.letters.save(
        [letter(name, envelope=envelope(name, body=b"x" * size)) for name, size in sizes.items()]
    )
    letters, _ = store.letters.read(["a", "b", "c"])
    assert {one.task_id: len(one.envelope.body) for one in letters} == sizes
    assert sorted(size for _, size in apart) == [10_001, 30_000]


def test_claimed_letters_are_read_as_claimed(store):
    store.letters.save([letter("a")])
    later = T0 + timedelta(hours=1)
    redriving.claim(store, Filter(), token="t", lease_until=later, limit=1, now=T0)
    (found,), _ = store.letters.read(["a"])
    assert (found.state, found.claim_token, found.redrive_count) == (State.CLAIMED, "t", 0)


def test_tracebacks_are_read_in_one_statement(store):
    store.letters.save([letter(name, traceback=f"{name} failed\n漢字") for name in "abc"])
    asked = []
    found = statements_of(
        store, lambda: asked.append(store.letters.read_tracebacks(["c", "gone", "a"]))
    )
    assert asked == [{"a": "a failed\n漢字", "c": "c failed\n漢字"}]
    assert len([statement for statement, _ in found if "traceback" in statement]) == 1
    assert store.letters.read_tracebacks([]) == {}


@pytest.mark.clear("it reads or writes the tables itself")
def test_no_white_space_changes_what_stored_text_says(store):
    headers = {"id": "0d3f", "raw": b"\xff"}
    store.letters.save([letter("0d3f", envelope=envelope("0d3f", headers=headers))])
    spaced = '{ "id" : "0d3f", "raw" : { "$bytes" : "/w==" } }'
    store.database.write(
        lambda connection: connection.execute(update(tables.content).values(headers=spaced))
    )
    assert store.letters.get("0d3f").envelope.headers == headers


@pytest.mark.clear("it reads or writes the tables itself")
def test_headers_are_written_in_the_order_of_the_message(store):
    headers = {
        "lang": "py",
        "task": "shop.charge",
        "id": "0d3f",
        "shadow": None,
        "argsrepr": "('é $5',)",
    }
    store.letters.save([letter("0d3f", envelope=envelope("0d3f", headers=headers))])
    with store.database.engine.connect() as connection:
        text = connection.execute(select(tables.content.c.headers)).scalar_one()
    assert text.startswith('{"lang":"py","task":"shop.charge"')
    assert list(json.loads(text)) == list(headers)
