"""Automatic redrives as each database keeps them."""

from datetime import timedelta

import pytest
from support.auto_world import candidate
from support.factories import T0, attempt, letter, operation
from support.stores.history import all_before

from celery_dlq.model.automation import EVERY, AutoMode, AutoSends, AutoState
from celery_dlq.model.handling import HandlingState
from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import OperationState, SendingState
from celery_dlq.store.base import Filter, Scope
from celery_dlq.store.listener import StoreListener
from celery_dlq.store.sql import SQLStore

NOW = T0 + timedelta(hours=1)
CHARGES = Filter(task="shop.charge")


@pytest.fixture
def auto(store):
    return store.automations


@pytest.fixture
def lease(store):
    return store.leases.take("auto.test", holder="a worker", seconds=3_600)


def begin(store, lease, *task_ids, run_id="run1", at=NOW, mode=AutoMode.ON):
    wanted = Filter(ids=task_ids, until=NOW)
    new = operation(run_id, wanted=wanted, created_at=at, detached=True, who="auto:nightly")
    letters = [candidate(task_id) for task_id in task_ids]
    return store.automations.begin(lease, "nightly", letters, new, mode=mode)


def letters_of(store, run_id="run1"):
    """The letters of a run, in the order of their ids."""
    rows = store.automations.find(name="nightly").rows
    return sorted(row.task_id for row in rows if row.version == run_id)


def send(store, *task_ids, run_id="run1", at=NOW):
    """Let the operation of a run send its letters, and be done."""
    store.operations.move(run_id, OperationState.RUNNING, who="w", now=at)
    made = store.operations.get(run_id)
    store.claims.take(made, token=run_id, lease_until=at + timedelta(hours=1), limit=99, now=at)
    store.claims.confirm(run_id, run_id, dict.fromkeys(task_ids, ""), now=at, is_all=True)
    store.operations.move(run_id, OperationState.DONE, who="w", now=at)


def fail(store, task_id, at, redrive=1):
    minutes = (at - T0).total_seconds() / 60
    store.letters.save([letter(task_id, attempt(redrive=redrive, minutes=minutes))])


def candidates(store, wanted=CHARGES, failed_by=NOW, **options):
    scope = Scope(name="nightly", where=wanted)
    return store.automations.candidates(scope, failed_by=failed_by, limit=10, **options)


def test_candidates_come_oldest_first_and_page_by_page(store):
    for number, name in enumerate("cab"):
        store.letters.save([letter(name, attempt(minutes=number))])
    store.letters.save([letter("later", attempt(minutes=90))])
    store.letters.save([letter("other", task="shop.mail")])
    assert [one.task_id for one in candidates(store)] == ["c", "a", "b"]
    first, *_ = candidates(store)
    assert [one.task_id for one in candidates(store, after=first)] == ["a", "b"]
    assert (first.task, first.fingerprint, first.redrive_count, first.tries) == (
        "shop.charge", "9c1e0000deadbeef", 0, (),
    )  # fmt: skip


def test_letters_that_failed_at_the_same_moment_are_all_found(store):
    store.letters.save([letter(name) for name in "dabc"])
    found, after = [], None
    scope = Scope(name="nightly", where=CHARGES)
    while page := store.automations.candidates(scope, failed_by=NOW, limit=1, after=after):
        found += [one.task_id for one in page]
        after = page[-1]
    assert sorted(found) == ["a", "b", "c", "d"]


def test_a_run_is_begun_whole_with_its_operation(store, auto, lease):
    store.letters.save([letter("a")])
    assert begin(store, lease, "a")
    assert auto.unfinished() == auto.unfinished("nightly") == ["run1"]
    assert auto.unfinished("another") == []
    [made] = auto.find(name="nightly").rows
    assert (made.task_id, made.state, made.verdict) == ("a", HandlingState.DONE, "redrive")
    assert (made.version, made.operation, made.tries) == ("run1", "run1", 0)
    assert store.operations.get("run1").wanted.ids == ("a",)
    [entry] = store.audit.find(act="redrive").rows
    assert entry.detail["operation"] == "run1"


def test_a_try_says_how_it_went(store, lease):
    store.letters.save([letter("a")])
    begin(store, lease, "a")
    [waiting] = candidates(store)
    assert (waiting.tries[0].state, waiting.tries[0].is_over) == (None, False)
    assert not waiting.tries[0].counts
    send(store, "a")
    assert candidates(store) == []
    fail(store, "a", NOW + timedelta(minutes=1))
    [again] = candidates(store, failed_by=NOW + timedelta(hours=1))
    [tried] = again.tries
    assert (tried.state, tried.is_over, tried.at) == (SendingState.FAILED, True, NOW)
    assert tried.counts


def test_without_its_lease_nothing_is_written(store, auto, lease):
    store.letters.save([letter("a")])
    store.leases.give_up(lease)
    assert store.leases.take("auto.test", holder="another", seconds=3_600)
    assert not begin(store, lease, "a")
    assert not auto.looked(lease, "nightly", NOW)
    assert auto.hold(lease, "nightly", {"a": "enough"}, NOW) == 0
    assert (auto.find().rows, auto.statuses(), store.operations.find()) == ((), {}, [])


@pytest.mark.parametrize("name", ["nightly", EVERY])
@pytest.mark.parametrize("state", [AutoState.PAUSED, AutoState.SUSPENDED])
def test_one_that_was_stopped_since_it_chose_begins_no_run(store, auto, lease, state, name):
    store.letters.save([letter("a")])
    auto.set_state(name, state, who="ann", now=NOW)
    assert not begin(store, lease, "a")
    assert store.operations.find() == []


def test_a_state_is_set_once_and_audited(store, auto):
    assert auto.set_state("nightly", AutoState.PAUSED, who="ann", why="a release", now=NOW)
    assert not auto.set_state("nightly", AutoState.PAUSED, who="bob", now=NOW)
    assert not auto.set_state("nightly", AutoState.SUSPENDED, who="auto:nightly", now=NOW)
    status = auto.statuses()["nightly"]
    assert (status.state, status.who, status.why, status.at) == (
        AutoState.PAUSED, "ann", "a release", NOW,
    )  # fmt: skip
    assert auto.set_state("nightly", AutoState.ACTIVE, who="bob", now=NOW)
    acts = [(row.act, row.who, row.detail["auto"]) for row in store.audit.find().rows]
    assert acts == [("resume", "bob", "nightly"), ("pause", "ann", "nightly")]


def test_when_it_looked_does_not_change_its_state(store, auto, lease):
    auto.set_state(EVERY, AutoState.PAUSED, who="ann", why="audit", now=NOW)
    assert auto.looked(lease, EVERY, NOW + timedelta(minutes=1))
    status = auto.statuses()[EVERY]
    assert (status.state, status.looked_at) == (AutoState.PAUSED, NOW + timedelta(minutes=1))
    auto.make_due(EVERY, who="bob", now=NOW)
    assert auto.statuses()[EVERY].looked_at is None
    [entry] = store.audit.find(act="run").rows
    assert (entry.who, entry.detail["auto"]) == ("bob", EVERY)


def test_a_suspension_is_announced_once(database_url, session_store, store):
    class Listener(StoreListener):
        heard = ()

        def suspended(self, status):
            self.heard = (*self.heard, status.name)

    listener = Listener()
    listening = SQLStore(database_url, listener=listener)
    for _ in range(2):
        listening.automations.set_state(
            "nightly", AutoState.SUSPENDED, who="auto:nightly", why="all failed", now=NOW
        )
    listening.close()
    assert listener.heard == ("nightly",)


def test_held_letters_are_no_candidates_but_are_found(store, auto, lease):
    store.letters.save([letter("a"), letter("b")])
    assert auto.hold(lease, "nightly", {"a": "enough", "b": "enough"}, NOW) == 2
    assert auto.hold(lease, "nightly", {"a": "again"}, NOW) == 0
    assert candidates(store) == []
    assert [one.task_id for one in store.letters.find(Filter(held=True)).letters] == ["b", "a"]
    assert auto.held(["a", "x"])["a"].why == "enough"
    assert auto.count_held() == {"nightly": 2}
    store.letters.record_outcomes([Outcome(task_id="a", redrive=0, succeeded_at=NOW, worker="w")])
    assert auto.count_held() == {"nightly": 1}


def test_what_is_sent_counts_for_a_day_and_what_is_not_does_not(store, auto, lease):
    store.letters.save([letter("a"), letter("b")])
    begin(store, lease, "a", "b")
    later = NOW + timedelta(minutes=1)
    assert auto.sends("nightly", AutoMode.ON, later) == AutoSends(day=2, hour_of_all=2)
    store.operations.move("run1", OperationState.CANCELLED, who="ann", now=NOW)
    assert auto.sends("nightly", AutoMode.ON, later) == AutoSends(day=0, hour_of_all=0)
    begin(store, lease, "a", run_id="run2")
    send(store, "a", run_id="run2")
    assert auto.sends("nightly", AutoMode.ON, later) == AutoSends(day=1, hour_of_all=1)
    assert auto.sends("another", AutoMode.ON, later) == AutoSends(day=0, hour_of_all=1)
    assert auto.sends("nightly", AutoMode.ON, NOW + timedelta(hours=2)).hour_of_all == 0
    assert auto.sends("nightly", AutoMode.ON, NOW + timedelta(hours=25)).day == 0


def test_a_shadow_run_has_letters_and_no_operation(store, auto, lease):
    store.letters.save([letter("a")])
    assert begin(store, lease, "a", mode=AutoMode.SHADOW)
    assert store.operations.find() == []
    [shadow] = auto.find(name="nightly").rows
    assert (shadow.state, shadow.version, shadow.operation) == (HandlingState.SHADOW, "run1", "")
    [seen] = candidates(store)
    assert (seen.tries[0].mode, seen.tries[0].is_over) == (AutoMode.SHADOW, True)
    assert not seen.tries[0].counts
    assert auto.sends("nightly", AutoMode.SHADOW, NOW + timedelta(minutes=1)).day == 1
    assert auto.sends("nightly", AutoMode.ON, NOW + timedelta(minutes=1)).day == 0


def test_the_last_outcomes_newest_first(store, auto, lease):
    store.letters.save([letter(name) for name in "abc"])
    begin(store, lease, "a", "b", "c")
    send(store, "a", "b", "c")
    fail(store, "a", NOW + timedelta(minutes=1))
    store.letters.record_outcomes(
        [Outcome(task_id="b", redrive=1, succeeded_at=NOW + timedelta(minutes=2), worker="w")]
    )
    found = auto.outcomes("nightly", since=None, limit=9)
    assert found == [SendingState.SUCCEEDED, SendingState.FAILED]
    assert auto.outcomes("nightly", since=None, limit=1) == [SendingState.SUCCEEDED]
    since = NOW + timedelta(minutes=1)
    assert auto.outcomes("nightly", since=since, limit=9) == [SendingState.SUCCEEDED]


def test_the_last_operation_that_was_aborted(store, auto, lease):
    store.letters.save([letter("a")])
    begin(store, lease, "a")
    assert auto.aborted("nightly", since=None) is None
    store.operations.move("run1", OperationState.ABORTED, who="guard", cause="bad", now=NOW)
    assert auto.aborted("nightly", since=None) == ("run1", "bad")
    assert auto.aborted("nightly", since=NOW) is None


def test_letters_that_an_earlier_one_matches_are_no_candidates(store, auto):
    store.letters.save([letter("a"), letter("b", task="shop.mail")])
    later, earlier = Scope(name="all", where=Filter()), Scope(name="charges", where=CHARGES)
    assert [one.task_id for one in auto.candidates(later, [earlier], limit=9)] == ["b"]


def test_measures_show_states_letters_and_held_ones(store, auto):
    lease = store.leases.take("auto.test", holder="a worker", seconds=3_600)
    now = store.now()
    store.letters.save([letter("a"), letter("b")])
    auto.looked(lease, "nightly", now)
    begin(store, lease, "a", at=now)
    send(store, "a", at=now)
    auto.hold(lease, "nightly", {"b": "enough"}, now)
    found = store.monitoring.measures()
    assert found.auto_redrives == {"nightly": AutoState.ACTIVE}
    assert found.auto_letters == {("nightly", SendingState.SENT): 1}
    assert found.held == {"nightly": 1}


def test_history_keeps_the_tries_of_open_letters(store, auto, lease):
    store.letters.save([letter("a"), letter("b")])
    begin(store, lease, "a", "b")
    send(store, "a", "b")
    fail(store, "a", NOW + timedelta(minutes=1))
    auto.hold(lease, "nightly", {"a": "enough", "b": "enough"}, NOW)
    store.letters.record_outcomes(
        [Outcome(task_id="b", redrive=1, succeeded_at=NOW + timedelta(minutes=2), worker="w")]
    )
    while store.history.prune(all_before(NOW + timedelta(days=400)), limit=100):
        pass
    assert letters_of(store) == ["a"]
    assert set(auto.held(["a", "b"])) == {"a"}
    store.letters.record_outcomes(
        [Outcome(task_id="a", redrive=2, succeeded_at=NOW + timedelta(minutes=3), worker="w")]
    )
    while store.history.prune(all_before(NOW + timedelta(days=400)), limit=100):
        pass
    assert (letters_of(store), auto.held(["a"])) == ([], {})
