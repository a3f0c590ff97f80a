"""Requests for a second person: frozen, approved once, and carried out in the transaction of the approval."""

from __future__ import annotations

import contextlib
import hashlib
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from support.factories import T0, attempt, letter, operation
from support.stores.history import edit

from celery_dlq.base.sealing import Keyring
from celery_dlq.errors import FilterError, RequestRefused, UnknownRequest
from celery_dlq.model.operation import Counts
from celery_dlq.model.request import Login, RequestState
from celery_dlq.model.states import State
from celery_dlq.store import requests
from celery_dlq.store.base import Filter
from celery_dlq.store.sql import SQLStore

ANN, BOB, EVE = Login("ann"), Login("bob"), Login("eve")
DEAD = Filter(states=frozenset({State.DEAD}))


@pytest.fixture
def letters(store):
    store.letters.save([letter(name, attempt(minutes=n)) for n, name in enumerate("cab")])
    return store


def ask(store, act="redrive", *, who=ANN, wanted=DEAD, seconds=60.0, **given):
    made = store.requests.create(
        wanted, act=act, who=who, why="fixed", letters=store.requests.freeze(wanted, **given),
        changes={"a": 1}, shown={"b": 2}, expires_after_s=seconds,
    )  # fmt: skip
    return made.id


def redrive(request):
    """Begins the operation of a request."""
    return lambda ids: operation(
        request, wanted=Filter(ids=tuple(ids)), counts=Counts(planned=len(ids))
    )


def delete(_ids):
    return None


def acts(store):
    return [(one.act, one.who, one.count) for one in store.audit.find().rows][::-1]


@contextlib.contextmanager
def later(monkeypatch, store, **span):
    moment = store.requests.get(ask(store)).at + timedelta(**span)
    with monkeypatch.context() as patched:
        patched.setattr(requests.clock, "now", lambda _connection: moment)
        yield


pytestmark = pytest.mark.on_servers


def test_a_request_is_read_as_it_was_written(letters):
    before = letters.now()
    one = letters.requests.get(ask(letters, who="root", limit=2))
    assert (one.act, one.who, one.proven, one.why) == ("redrive", "root", False, "fixed")
    assert [*one.letters] == ["c", "a"], "the oldest failures first"
    assert (one.count, one.states, one.changes, one.shown) == (2, (State.DEAD,), {"a": 1}, {"b": 2})
    assert before - timedelta(seconds=5) < one.at < before + timedelta(minutes=5)
    assert one.expires_at - one.at == timedelta(seconds=60)
    assert letters.requests.find() == [one]
    assert acts(letters) == [("request", "root", 2)]


def test_an_unknown_one(store):
    with pytest.raises(UnknownRequest):
        store.requests.get("0a1b2c3d4e5f")
    with pytest.raises(UnknownRequest):
        store.requests.answer("0a1b2c3d4e5f", None, who=BOB)


def test_too_many_letters_are_not_frozen(letters, monkeypatch):
    monkeypatch.setattr(requests, "MOST", 2)
    with pytest.raises(FilterError, match="at most 2 letters"):
        ask(letters)
    assert (letters.requests.find(), acts(letters)) == ([], [])


def test_those_that_wait_are_listed_before_all_others(letters):
    waits = [ask(letters), ask(letters)]
    ended = [ask(letters) for _ in range(3)]
    for request in ended:
        letters.requests.answer(request, None, who="x")
    found = [one.id for one in letters.requests.find(limit=1)]
    assert (found[:2], found[2:]) == (waits[::-1], ended[-1:])


def test_an_approval_begins_the_operation_in_one_transaction(letters):
    request = ask(letters)
    done = letters.requests.answer(request, redrive(request), who=BOB, why="looks good")
    assert done.state is RequestState.DONE
    assert letters.operations.get(request).wanted.ids == ("c", "a", "b")
    [answer] = letters.requests.get(request).answers
    assert (answer.who, answer.approves, answer.why) == ("bob", True, "looks good")
    assert [*letters.requests.approved(request)] == ["c", "a", "b"]
    assert letters.requests.approved("another") is letters.requests.approved(ask(letters)) is None


@pytest.mark.parametrize("step", ["create_operation", "_write", "_note"])
def test_killed_at_any_step_it_is_done_once(letters, monkeypatch, step):
    request, real = ask(letters), getattr(requests, step)

    def die(*args, **kwargs):
        real(*args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(requests, step, die)
    with pytest.raises(KeyboardInterrupt):
        letters.requests.answer(request, redrive(request), who=BOB)
    monkeypatch.undo()
    assert letters.requests.get(request).state is RequestState.OPEN
    assert letters.operations.find() == []
    letters.requests.answer(request, redrive(request), who=EVE)
    assert [one.id for one in letters.operations.find()] == [request]
    with pytest.raises(RequestRefused, match="already approved by eve"):
        letters.requests.answer(request, redrive(request), who=BOB)
    assert [one.id for one in letters.operations.find()] == [request]


@pytest.mark.clear("it makes a store with other keys")
def test_of_many_approvers_at_once_one_wins(letters, database_url):
    request, starts = ask(letters, "delete"), Barrier(4)

    def approve(name):
        with contextlib.closing(SQLStore(database_url, timeout=30)) as own:
            own.check_schema()
            starts.wait()
            try:
                return own.requests.answer(request, delete, who=Login(name)).state.value
            except RequestRefused as error:
                return str(error)

    with ThreadPoolExecutor(4) as pool:
        ends = list(pool.map(approve, ["bob", "eve", "joe", "kim"]))
    assert ends.count("done") == 1
    assert sum("already approved by" in end for end in ends) == 3
    names = [act for act, *_ in acts(letters)]
    assert sorted(names) == ["approve", "delete", "deny", "deny", "deny", "request"]
    assert letters.counts.letters(DEAD) == 0


def test_a_deletion_takes_only_unchanged_letters(letters):
    request = ask(letters, "delete")
    edit(letters, "a", at=T0)
    letters.closing.discard(Filter(ids=("c",)), who="x", why="no", now=T0)
    done = letters.requests.answer(request, delete, who=BOB)
    assert done.result == {
        "letters": 1,
        "left_out": {"c": "it is discarded now", "a": "its message was edited"},
    }
    assert letters.counts.letters(Filter(states=frozenset({State.DEAD, State.DISCARDED}))) == 2


def test_letters_that_are_gone(letters):
    request = ask(letters, "forget", archived=["old"])
    letters.deleting.delete(DEAD, who="x", why="no", now=T0)
    letters.letters.save([letter("old")])
    failed = letters.requests.answer(request, lambda _ids: None, who=BOB)
    assert failed.state is RequestState.FAILED
    assert failed.result["left_out"] == {
        "old": "it was brought back from the archive",
        **dict.fromkeys("cab", "it is no longer in the store"),
    }


def test_it_expires_by_the_clock_of_the_database(letters, monkeypatch):
    waits = ask(letters, seconds=3_600)
    old = ask(letters, seconds=1)
    with later(monkeypatch, letters, seconds=2):
        assert letters.requests.get(old).state is RequestState.EXPIRED
        with pytest.raises(RequestRefused, match="expired"):
            letters.requests.answer(old, delete, who=BOB)
        with pytest.raises(RequestRefused, match="expired"):
            letters.requests.answer(old, None, who=BOB)
    assert letters.requests.answer(waits, None, who="x").state is RequestState.REFUSED


def test_old_ones_are_deleted_by_retention(letters, monkeypatch):
    ask(letters, seconds=1)
    with later(monkeypatch, letters, hours=2):
        letters.requests.prune(None)
        assert [one.state.value for one in letters.requests.find()] == ["expired"] * 2
        letters.requests.prune(requests.clock.now(None) - timedelta(hours=1))
        assert [one.expires_at for one in letters.requests.find()] == []


def test_one_stays_as_long_as_its_operation(letters, monkeypatch):
    request = ask(letters, seconds=1)
    letters.requests.answer(request, redrive(request), who=BOB)
    with later(monkeypatch, letters, days=9):
        letters.requests.prune(requests.clock.now(None))
    assert letters.requests.approved(request)


def test_an_ended_one_keeps_no_changes(letters):
    request = ask(letters)
    letters.requests.answer(request, None, who="x", why="no")
    one = letters.requests.get(request)
    assert (one.changes, one.shown, len(one.letters)) == ({}, {}, 3)


@pytest.mark.clear("it makes a store with other keys")
def test_a_plan_that_was_changed_needs_the_key_of_the_store(database_url, letters):
    with contextlib.closing(SQLStore(database_url, ring=Keyring({"key": b"k" * 32}))) as sealed:
        made = sealed.requests.get(ask(sealed))
        row = sealed.transactions.write(lambda connection: requests._values(connection, made))
    assert row["digest"] != hashlib.sha256(row["record"].encode()).hexdigest()
    assert "plan" not in row["record"]
