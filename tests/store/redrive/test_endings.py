from __future__ import annotations

from datetime import timedelta

import pytest
from support.factories import T0, attempt, letter, operation, parking
from support.stores.rollup_checks import assert_counts_hold

from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import Counts, OperationState, SendingState
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def success(redrive: int = 1, at: float = 10, task_id: str = "a", release: str = ""):
    return Outcome(
        task_id=task_id, redrive=redrive, succeeded_at=minutes(at), worker="w", release=release
    )


def failure(redrive: int = 1, at: float = 10, task_id: str = "a", **changes):
    return letter(task_id, attempt(redrive=redrive, minutes=at), **changes)


def claim(store, of: str = "one", token: str = "t", now: float = 1, **changes) -> None:
    at = {"lease_until": minutes(now + 1), "now": minutes(now)}
    assert store.claims.take(operation(of, **changes), token=token, limit=500, **at).letters


def confirm(store, *task_ids: str, of: str = "one", token: str = "t", at: float = 2) -> int:
    return store.claims.confirm(of, token, dict.fromkeys(task_ids, ""), now=minutes(at))


@pytest.fixture(autouse=True)
def _counts_hold_in_the_end(store):
    yield
    store.closing.discard(Filter(states=frozenset({State.PARKED})), who="test", why="over", now=T0)
    assert_counts_hold(store)


@pytest.fixture
def sent(store):
    """Letters a and b, sent by operation one."""
    store.letters.save([letter("a"), letter("b")])
    store.operations.create(operation("one"))
    claim(store)
    confirm(store, "a", "b")
    return store


def state(store, task_id: str = "a") -> SendingState:
    return store.sendings.of_letter(task_id)[-1].state


def test_a_success_is_recorded(sent):
    sent.letters.record_outcomes([success()])
    (found,) = sent.sendings.of_letter("a")
    assert (found.state, found.ended_at, found.why) == (SendingState.SUCCEEDED, minutes(10), "")
    assert sent.operations.get("one").counts == Counts(planned=3, sent=1, succeeded=1)


def test_a_success_says_in_which_release(sent):
    sent.letters.record_outcomes([success(release="1.4.2")])
    (found,) = sent.sendings.of_letter("a")
    assert found.why == "succeeded in release 1.4.2"


def test_another_failure_is_recorded_with_its_exception(sent):
    sent.letters.save([failure(exception_type="KeyError", message="'x'" * 999, fingerprint="beef")])
    (found,) = sent.sendings.of_letter("a")
    assert (found.state, found.fingerprint, found.ended_at) == (
        SendingState.FAILED, "beef", minutes(10),
    )  # fmt: skip
    assert found.why.startswith("KeyError: 'x'")
    assert len(found.why) <= 500
    assert sent.letters.get("a").state is State.DEAD


def test_an_outcome_that_overtakes_the_mark_stands(store):
    store.letters.save([letter("a"), letter("b")])
    claim(store)
    store.letters.record_outcomes([success()])
    store.letters.save([failure(task_id="b")])
    assert confirm(store, "a", "b") == 0
    (a,), (b,) = store.sendings.of_letter("a"), store.sendings.of_letter("b")
    assert (a.state, a.sent_at) == (SendingState.SUCCEEDED, minutes(2))
    assert (b.state, b.sent_at) == (SendingState.FAILED, minutes(2))
    assert [item.redrive_count for item in map(store.letters.get, "ab")] == [1, 1]


@pytest.mark.on_servers
def test_the_original_message_ends_no_redrive(sent):
    sent.letters.record_outcomes([success(redrive=0)])
    sent.letters.save([failure(redrive=0, task_id="b")])
    assert state(sent) is state(sent, "b") is SendingState.SENT


def test_each_redrive_has_its_own_end(sent):
    sent.letters.save([failure(1)])
    claim(sent, "two", "u", now=20)
    confirm(sent, "a", of="two", token="u")
    sent.letters.record_outcomes([success(2, at=30)])
    assert [(item.operation, item.redrive, item.state.value) for item in sent.sendings.of_letter("a")] == [
        ("one", 1, "failed"), ("two", 2, "succeeded"),
    ]  # fmt: skip


@pytest.mark.on_servers
def test_the_later_of_two_ends_counts_in_whatever_order_they_come(sent):
    sent.letters.record_outcomes([success(at=12)])
    sent.letters.save([failure(at=11)])
    assert state(sent) is SendingState.SUCCEEDED
    sent.letters.save([failure(at=13)])
    assert state(sent) is SendingState.FAILED
    sent.letters.record_outcomes([success(at=12), success(at=14)])
    assert state(sent) is SendingState.SUCCEEDED


def test_every_operation_that_sent_a_copy_gets_the_end(store):
    store.letters.save([letter("a")])
    claim(store)
    claim(store, "two", "u", now=5)
    store.letters.record_outcomes([success()])
    assert [item.state.value for item in store.sendings.of_letter("a")] == [
        "succeeded",
        "succeeded",
    ]


@pytest.mark.on_servers
def test_a_skipped_sending_stays_skipped(store):
    store.letters.save([letter("a")])
    claim(store)
    store.claims.skip("one", "t", {"a": "too old"}, now=minutes(2))
    store.letters.record_outcomes([success()])
    assert state(store) is SendingState.SKIPPED


def test_a_letter_that_was_closed_since_does_not_hide_the_end(sent):
    sent.closing.discard(
        Filter(states=frozenset({State.REDRIVEN})), who="ann", why="", now=minutes(3)
    )
    sent.letters.record_outcomes([success()])
    assert state(sent) is SendingState.SUCCEEDED


@pytest.mark.on_servers
def test_many_end_in_one_batch(store):
    names = [f"{number:03}" for number in range(300)]
    store.letters.save([letter(name) for name in names])
    store.operations.create(operation("one", counts=Counts(planned=300)))
    claim(store)
    confirm(store, *names)
    store.letters.record_outcomes(
        [success(task_id=name, at=number) for number, name in enumerate(names[:200])]
    )
    store.letters.save([failure(task_id=name) for name in names[200:]])
    assert store.operations.get("one").counts == Counts(planned=300, succeeded=200, failed=100)


@pytest.mark.on_servers
def test_a_guard_looks_at_the_latest_ends(store):
    names = [f"{number:03}" for number in range(20)]
    store.letters.save([letter(name) for name in names])
    claim(store)
    confirm(store, *names)
    for number, name in enumerate(names):
        if number % 3:
            store.letters.save([failure(task_id=name, at=10 + number)])
        else:
            store.letters.record_outcomes([success(task_id=name, at=10 + number)])
    latest = store.sendings.recent_endings("one", 4)
    assert [(item.task_id, item.state.value) for item in latest] == [
        ("019", "failed"), ("018", "succeeded"), ("017", "failed"), ("016", "failed"),
    ]  # fmt: skip
    assert len(store.sendings.recent_endings("one", 99)) == 20
    assert store.sendings.recent_endings("two", 4) == []


@pytest.mark.on_servers
def test_endings_are_counted_by_time(sent):
    sent.letters.save([failure(task_id="a", at=50)])
    sent.letters.record_outcomes([success(task_id="b", at=52)])
    bounds = [minutes(at) for at in (0, 40, 51, 52, 60)]
    found = sent.sendings.endings_by_time("one", bounds)
    assert found == {SendingState.SUCCEEDED: [0, 0, 0, 1], SendingState.FAILED: [0, 1, 0, 0]}
    assert sent.sendings.endings_by_time("one", bounds[:1]) == {
        SendingState.SUCCEEDED: [], SendingState.FAILED: [],
    }  # fmt: skip


class TestExpiry:
    def expire(self, store, before: float = 60) -> int:
        return store.sendings.expire(sent_before=minutes(before), now=minutes(99))

    @pytest.mark.on_servers
    def test_an_outcome_that_never_came_is_unknown(self, sent):
        sent.letters.record_outcomes([success(task_id="b")])
        assert self.expire(sent, 2) == 0
        assert self.expire(sent) == 1
        assert self.expire(sent) == 0
        (found,) = sent.sendings.of_letter("a")
        assert (found.state, found.why) == (SendingState.UNKNOWN, "no outcome came")
        assert found.ended_at == minutes(99)
        assert sent.letters.get("a").state is State.REDRIVEN

    @pytest.mark.parametrize("succeeds", [True, False])
    def test_a_late_outcome_still_counts(self, sent, succeeds):
        self.expire(sent)
        if succeeds:
            sent.letters.record_outcomes([success(at=50)])
        else:
            sent.letters.save([failure(at=50)])
        (found,) = sent.sendings.of_letter("a")
        assert found.state is (SendingState.SUCCEEDED if succeeds else SendingState.FAILED)
        assert found.ended_at == minutes(50)
        assert found.why == ("" if succeeds else "ValueError: bad currency")

    def test_a_letter_whose_redrive_is_unknown_may_be_named_for_another(self, sent):
        self.expire(sent)
        claim(sent, "two", "u", wanted=Filter(states=frozenset({State.REDRIVEN})))
        assert [item.redrive for item in sent.sendings.of_letter("a")] == [1, 2]

    @pytest.mark.on_servers
    def test_a_retry_that_is_parked_is_not_lost(self, sent):
        sent.parked.park([parking("a", 3600)], now=T0)
        assert self.expire(sent) == 1
        assert (state(sent), state(sent, "b")) == (SendingState.SENT, SendingState.UNKNOWN)

    def test_sendings_that_an_ended_operation_left_are_unknown(self, store):
        store.letters.save([letter("a")])
        store.operations.create(operation("one"))
        claim(store)
        assert self.expire(store) == 0
        store.operations.move("one", OperationState.CANCELLED, who="ann", now=minutes(9))
        assert self.expire(store, 0) == 0
        assert self.expire(store) == 1
        assert state(store) is SendingState.UNKNOWN

    def test_without_operations_there_is_nothing_to_expire(self, store):
        assert self.expire(store) == 0
