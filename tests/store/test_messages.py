from __future__ import annotations

from datetime import timedelta

import pytest
import redriving
from factories import T0, envelope, letter

from celery_dlq.states import State
from celery_dlq.store import messages
from celery_dlq.store.base import Filter
from celery_dlq.store.bodies import read_bodies, within


@pytest.fixture
def small(monkeypatch):
    """Few bytes are read together."""
    monkeypatch.setattr(within, "__defaults__", (100_000,))


def read(store, *task_ids: str) -> tuple[str, int]:
    letters, told = store.read_letters(task_ids)
    return "".join(one.task_id for one in letters), told


def test_letters_are_read_in_order_with_their_messages(store):
    whole = {name: letter(name, tags=("x",)) for name in "abc"}
    store.save([*whole.values()])
    letters, told = store.read_letters(["c", "gone", "a"])
    assert told == 3
    assert letters == [
        whole[name].with_(attempts=(), traceback="", attempt_count=1) for name in "ca"
    ]


def test_as_many_as_fit_and_one_at_least(store, small):
    sizes = {"a": 60_000, "b": 30_000, "c": 20_000, "d": 200_000}
    store.save(
        [letter(name, envelope=envelope(name, body=b"x" * size)) for name, size in sizes.items()]
    )
    assert read(store, "a", "b", "gone", "c", "d") == ("ab", 3)
    assert read(store, "c", "d") == ("c", 1)
    assert read(store, "d", "a") == ("d", 1)
    assert read(store, "gone") == ("", 1)
    assert read(store) == ("", 0)
    (large,), _ = store.read_letters(["d"])
    assert len(large.envelope.body) == 200_000


def test_a_body_that_is_too_large_to_be_read_along_with_so_many_is_read_by_itself(
    store, monkeypatch
):
    apart = []

    def read_apart(connection, sizes):
        apart.extend(sizes)
        return read_bodies(connection, apart)

    monkeypatch.setattr("celery_dlq.store.bodies.TOGETHER", 30_000)
    monkeypatch.setattr(messages, "read_bodies", read_apart)
    sizes = {"a": 10_000, "b": 10_001, "c": 30_000}
    store.save(
        [letter(name, envelope=envelope(name, body=b"x" * size)) for name, size in sizes.items()]
    )
    letters, _ = store.read_letters(["a", "b", "c"])
    assert {one.task_id: len(one.envelope.body) for one in letters} == sizes
    assert sorted(size for _, size in apart) == [10_001, 30_000]


def test_what_is_claimed_is_read_as_that(store):
    store.save([letter("a")])
    later = T0 + timedelta(hours=1)
    redriving.claim(store, Filter(), token="t", lease_until=later, limit=1, now=T0)
    (found,), _ = store.read_letters(["a"])
    assert (found.state, found.claim_token, found.redrive_count) == (State.CLAIMED, "t", 0)
