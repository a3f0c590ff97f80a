from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from support.factories import T0, attempt, letter

from celery_dlq.archive.archiving import chunks
from celery_dlq.errors import LeaseLost, StoreUnavailable
from celery_dlq.model.request import RequestState
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter, LetterKey, Rows
from celery_dlq.upkeep import expiring as module
from celery_dlq.upkeep.expiring import RetentionEngine, Round
from celery_dlq.upkeep.retention import Keep, Retention

MONTH = timedelta(days=30)


def days(number: float):
    return T0 + timedelta(days=number)


@pytest.fixture
def store(own_store, monkeypatch):
    """Six letters of two tasks, closed on days 1 to 5; the last one is open. Today is day 33."""
    store = own_store
    names = "abcdef"
    store.letters.save(
        [letter(name, attempt(), task="pay" if name in "ab" else "mail") for name in names]
    )
    for at, name in enumerate(names[:5], 1):
        store.closing.discard(Filter(ids=(name,)), who="ann", why="", now=days(at))
    monkeypatch.setattr(store, "now", lambda: days(33))
    return store


def never(_seconds: float) -> bool:
    return False


def left(store) -> list[str]:
    found = store.letters.find(Filter(states=frozenset(State)), limit=99).letters
    return sorted(one.task_id for one in found)


def lease(store):
    return store.leases.take("retention", holder="me", seconds=60)


def engine(store, retention: Retention, **options) -> RetentionEngine:
    return RetentionEngine(lambda: store, retention, **options)


def test_a_round_deletes_what_was_kept_long_enough_and_audits_it(store):
    retention = Retention(letters=[Keep(None, where=Filter(task="pay")), Keep(MONTH)])
    assert engine(store, retention).run(lease(store), never) == Round(0, is_over=True)
    retention = Retention(letters=[Keep(None, where=Filter(ids=("a",))), Keep(MONTH)])
    assert engine(store, retention).run(lease(store), never) == Round(1, is_over=True)
    assert left(store) == ["a", "c", "d", "e", "f"]
    act = store.audit.find(act="expire").rows[0]
    assert (act.who, act.count) == ("retention", 1)
    assert act.detail == {
        "keep": [
            {"filter": {"ids": ["a"]}, "closed_before": None},
            {"filter": {}, "closed_before": days(3).isoformat()},
        ]
    }


def test_a_round_by_hand_is_audited_under_the_persons_name(store):
    made = engine(store, Retention(letters=[Keep(timedelta(days=1))]))
    assert made.run(lease(store), never, who="ada") == Round(5, is_over=True)
    [act] = store.audit.find(act="expire").rows
    assert (act.who, act.count) == ("ada", 5)


def test_a_changed_setting_works_at_once(store):
    assert engine(store, Retention(letters=[Keep(timedelta(days=40))])).run(
        lease(store), never
    ) == Round(0, is_over=True)
    assert engine(store, Retention(letters=[Keep(timedelta(days=1))])).run(
        lease(store), never
    ) == Round(5, is_over=True)
    assert left(store) == ["f"]


def test_a_round_that_deletes_nothing_writes_no_audit(store):
    engine(store, Retention()).run(lease(store), never)
    assert store.audit.find(act="expire").rows == ()


def test_history_goes_by_its_own_ages(store):
    kept = Retention(history=timedelta(days=1), arrivals=None, audit=None)
    engine(store, kept).run(lease(store), never)
    assert len(store.audit.find(act="discard").rows) == 5
    engine(store, Retention(audit=timedelta(days=30))).run(lease(store), never)
    assert [act.at for act in store.audit.find(act="discard").rows] == [days(5), days(4), days(3)]


def test_it_pauses_so_that_it_uses_a_quarter_of_the_time(store, monkeypatch):
    monkeypatch.setattr(module, "MOST", 2)
    clock = [0.0]
    delete_closed = store.deleting.delete_closed

    def in_two_seconds(keys, held, act):
        clock[0] += 2.0
        return delete_closed(keys, held, act)

    monkeypatch.setattr(store.deleting, "delete_closed", in_two_seconds)
    pauses = []
    made = engine(store, Retention(letters=[Keep(timedelta(days=1))]), monotonic=lambda: clock[0])
    assert made.run(lease(store), lambda seconds: bool(pauses.append(seconds))).letters == 5
    assert [seconds for seconds in pauses if seconds] == [6.0, 6.0, 6.0]


def test_a_round_that_is_cut_off_is_audited_as_far_as_it_went(store, monkeypatch):
    monkeypatch.setattr(module, "MOST", 2)
    delete_closed = store.deleting.delete_closed
    calls = iter("ok")

    def twice(*args):
        if next(calls, None) is None:
            raise LeaseLost
        return delete_closed(*args)

    monkeypatch.setattr(store.deleting, "delete_closed", twice)
    with pytest.raises(LeaseLost):
        engine(store, Retention(letters=[Keep(timedelta(days=1))])).run(lease(store), never)
    assert len(left(store)) == 2
    assert [act.count for act in store.audit.find(act="expire").rows] == [4]


def test_it_stops_when_it_is_told(store, monkeypatch):
    monkeypatch.setattr(module, "MOST", 2)
    made = engine(store, Retention(letters=[Keep(timedelta(days=1))]))
    assert made.run(lease(store), lambda _seconds: True) == Round(2, is_over=False)
    assert len(left(store)) == 4


def test_a_round_that_is_stopped_in_its_history_deletes_no_letters(store):
    made = engine(store, Retention(letters=[Keep(timedelta(days=1))], audit=timedelta(days=1)))
    assert made.run(lease(store), lambda _seconds: True) == Round(0, is_over=False)
    assert len(left(store)) == 6


def test_with_an_archive_letters_are_moved(store):
    moved = []

    class Archiver:
        def archive(self, keys):
            for some in chunks(keys, 2):
                moved.extend(key.task_id for key in some)
                yield len(some)

    acts = []

    def archiver(_lease, who, detail):
        acts.append((who, detail))
        return Archiver()

    made = engine(store, Retention(letters=[Keep(timedelta(days=1))]), archiver=archiver)
    assert made.run(lease(store), never) == Round(5, is_over=True)
    assert sorted(moved) == ["a", "b", "c", "d", "e"]
    detail = {"keep": [{"filter": {}, "closed_before": days(32).isoformat()}]}
    assert acts == [("retention", detail)]


def test_a_runner_that_has_lost_its_lease_deletes_nothing(store):
    mine = lease(store)
    store.leases.give_up(mine)
    store.leases.take("retention", holder="other", seconds=60)
    with pytest.raises(LeaseLost):
        engine(store, Retention(letters=[Keep(timedelta(days=1))])).run(mine, never)
    assert len(left(store)) == 6


def test_after_a_transaction_that_takes_too_long_the_others_are_smaller(monkeypatch):
    monkeypatch.setattr(module, "MOST", 100)
    sizes: list[int] = []
    slow = [True]

    def delete_closed(keys, _lease, act):
        sizes.append(len(keys))
        if slow and len(keys) > 25:
            slow.pop()
            raise StoreUnavailable("the statement took too long")
        return len(keys), act

    keys = tuple(LetterKey(task_id=str(n), last_failed_at=T0, closed_at=T0) for n in range(300))
    pages = iter([Rows(rows=keys, next=None)])
    store = SimpleNamespace(
        now=lambda: T0,
        expiring=SimpleNamespace(find=lambda *_: next(pages), count=lambda *_, **__: ({}, None)),
        deleting=SimpleNamespace(delete_closed=delete_closed),
        reports=SimpleNamespace(note_round=lambda *_, **__: None),
        history=SimpleNamespace(prune=lambda *_args, **_options: 0),
        requests=SimpleNamespace(prune=lambda _before: None),
    )
    made = engine(store, Retention(letters=[Keep(MONTH)]))
    assert made.run(None, never) == Round(300, is_over=True)
    assert sizes == [100, *[25] * 12]


def test_a_round_expires_requests_that_waited_too_long(store):
    request = store.requests.create(
        Filter(), act="edit", who="ann", why="", letters={}, changes={"args": "[4711]"}, shown={},
        expires_after_s=0,
    )  # fmt: skip
    engine(store, Retention(history=None)).run(lease(store), never)
    expired = store.requests.get(request.id)
    assert (expired.state, expired.changes) == (RequestState.EXPIRED, {}), "it keeps no values"


def test_a_store_that_is_away_ends_the_round(monkeypatch):
    def away(*_args):
        raise StoreUnavailable("away")

    key = LetterKey(task_id="a", last_failed_at=T0, closed_at=T0)
    store = SimpleNamespace(
        now=lambda: T0,
        expiring=SimpleNamespace(find=lambda *_: Rows(rows=(key,), next=None)),
        deleting=SimpleNamespace(delete_closed=away),
        history=SimpleNamespace(prune=lambda *_args, **_options: 0),
        requests=SimpleNamespace(prune=lambda _before: None),
    )
    with pytest.raises(StoreUnavailable, match="away"):
        engine(store, Retention(letters=[Keep(MONTH)])).run(None, never)


def test_a_search_that_takes_too_long_is_tried_with_smaller_steps(store, monkeypatch):
    steps = {"find": [], "count": []}

    def slow(name):
        read = getattr(store.expiring, name)

        def read_slowly(expiries, after, step, **options):
            steps[name].append(step)
            if step > 100:
                raise StoreUnavailable("the statement took too long")
            return read(expiries, after, step, **options)

        return read_slowly

    for name in steps:
        monkeypatch.setattr(store.expiring, name, slow(name))
    made = engine(store, Retention(letters=[Keep(timedelta(days=1))]))
    assert sum(row.kept.expired.letters for row in made.plan()) == 5
    assert made.run(lease(store), never) == Round(5, is_over=True)
    # States follow each other: one step for the discarded letters, and one that finds no others. At the end
    # of the round, no letter is left to be counted.
    smaller = [5_000, 1_250, 312, 78]
    assert steps == {"find": [*smaller, 78], "count": [*smaller, 78, *smaller]}


def test_the_plan_has_every_entry_and_the_letters_that_none_matches(store):
    pay = Keep(None, where=Filter(task="pay"))
    month = Keep(timedelta(days=29), where=Filter(task="mail"))
    plan = engine(store, Retention(letters=[pay, month])).plan()
    assert [(row.where, row.age) for row in plan] == [
        (pay.where, pay.age), (month.where, month.age), (None, None),
    ]  # fmt: skip
    assert [(row.kept.every.letters, row.kept.expired.letters) for row in plan] == [
        (2, 0), (3, 1), (0, 0),
    ]  # fmt: skip
    assert plan[1].kept.oldest_closed_at == days(3)
    assert len(left(store)) == 6


def test_a_round_reports_what_it_has_removed_and_left(store):
    pay, month = Keep(None, where=Filter(task="pay")), Keep(MONTH)
    engine(store, Retention(letters=[pay, Keep(timedelta(days=29))])).run(lease(store), never)
    assert left(store) == ["a", "b", "d", "e", "f"]
    report = store.reports.keeping().round
    assert report.removed == 1
    assert [(one.where, one.age, one.kept.every.letters) for one in report.holdings] == [
        (pay.where, None, 2), (month.where, timedelta(days=29), 2), (None, None, 0),
    ]  # fmt: skip
    assert report.next_expires_at == days(4 + 29)
    assert (report.kept.within_day, report.kept.within_week) == (1, 2)


@pytest.mark.parametrize("pauses", [0, 1])
def test_a_round_that_does_not_come_to_its_end_writes_no_report(store, pauses):
    made, stops = engine(store, Retention(letters=[Keep(MONTH)])), iter([False] * pauses)
    ended = made.run(lease(store), lambda _seconds: next(stops, True))
    assert not ended.is_over
    assert store.reports.keeping().round is None


def test_the_count_of_a_round_pauses_as_its_other_steps_do(store, monkeypatch):
    clock, count = [0.0], store.expiring.count

    def in_two_seconds(expiries, after, _step, **options):
        clock[0] += 2.0
        return count(expiries, after, 2, **options)

    monkeypatch.setattr(store.expiring, "count", in_two_seconds)
    pauses = []
    made = engine(store, Retention(), monotonic=lambda: clock[0])
    made.run(lease(store), lambda seconds: bool(pauses.append(seconds)))
    assert pauses == [6.0, 6.0, 6.0, 6.0]
