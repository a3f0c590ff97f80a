"""Ledgers of processes that carry one operation together."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.factories import attempt, letter, operation

from celery_dlq.errors import StoreError
from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import Counts, Guard, OperationState, Orders, Pacing
from celery_dlq.redrive.flow.pace import STEP_S
from celery_dlq.redrive.ledger import LOCKED, LOOK_S, WAIT_S, BatchResult
from celery_dlq.redrive.shared import SharedLedger
from celery_dlq.store.redrive import claims

OFF = Guard(enabled=False)


@pytest.fixture
def ledgers(store, fill, time):
    """Two ledgers, each of its own process, over the letters a to h."""
    fill(*"abcdefgh")

    def ledgers(*, guard=OFF, planned=8, **pacing):
        orders = Orders(pacing=Pacing(processes=2, **pacing), guard=guard)
        made = operation(
            state=OperationState.RUNNING, counts=Counts(planned=planned), created_at=time.now,
            orders=orders,
        )  # fmt: skip
        store.operations.create(made)
        for name in made.lease_names:
            assert store.leases.take(name, holder=name, seconds=3_600)
        return [
            SharedLedger(
                store, made, time.clock, holder=name, batch=2, lease_s=60.0,
                should_stop=lambda: False,
            )
            for name in made.lease_names
        ]  # fmt: skip

    return ledgers


def ids(step):
    return [one.task_id for one in step.letters]


def sent(ledger, step):
    ledger.mark(BatchResult(token=step.token, sent=dict.fromkeys(ids(step), "")))


def ended(store, time, *names, fails=False):
    for name in names:
        time.pass_(0.001)
        if fails:
            store.letters.save([letter(name, attempt(redrive=1, minutes=90))])
        else:
            done = Outcome(task_id=name, redrive=1, succeeded_at=time.now, worker="w")
            store.letters.record_outcomes([done])


def send_all(*ledgers, time, most=50):
    """Let the ledgers send by turns until all are over; returns the letters that each has sent."""
    taken = {ledger: [] for ledger in ledgers}
    going = list(ledgers)
    for _ in range(most):
        for ledger in list(going):
            step = ledger.take()
            if step.letters:
                taken[ledger] += ids(step)
                sent(ledger, step)
            elif step.is_over:
                going.remove(ledger)
        time.pass_(WAIT_S)
        if not going:
            return list(taken.values())
    raise AssertionError("it does not end")


def test_processes_claim_different_letters_and_the_last_one_ends_it(ledgers, store, time):
    one, other = ledgers()
    first, second = send_all(one, other, time=time)
    assert sorted(first + second) == list("abcdefgh")
    assert len(first) == len(second) == 4
    assert one.close() == other.close()
    assert one.operation.state is OperationState.DONE
    assert one.counts == Counts(planned=8, sent=8)


def test_letters_that_a_broken_connection_has_locked_are_not_the_end(
    ledgers, store, time, monkeypatch
):
    """Claims pass over locked letters."""
    one, other = ledgers()
    with monkeypatch.context() as patch:
        patch.setattr(claims, "lock", lambda *_args, **_kwargs: [])
        for _ in range(5):
            for ledger in (one, other):
                step = ledger.take()
                assert (step.letters, step.is_over) == ((), False)
            time.pass_(WAIT_S)
        assert LOCKED in {one.take().waits_for, other.take().waits_for, step.waits_for}
    time.pass_(LOOK_S)
    first, second = send_all(one, other, time=time)
    assert sorted(first + second) == list("abcdefgh")


def test_the_limit_holds_for_all_together(ledgers, time):
    one, other = ledgers(planned=5, limit=5)
    steps = [one.take(), other.take(), one.take(), other.take()]
    assert [len(step.letters) for step in steps] == [2, 2, 1, 0]
    assert steps[-1].waits_for == "letters that other processes may give back"


def test_no_process_gets_more_than_its_part_of_the_last_letters(ledgers, fill, time, monkeypatch):
    fill(*(f"more{number}" for number in range(92)))
    one, other = ledgers(planned=100)
    for ledger in (one, other):
        monkeypatch.setattr(ledger, "_batch", 500)
        monkeypatch.setattr(ledger._steps, "size", 500)
    steps = [one.take(), other.take(), one.take(), other.take()]
    assert [len(step.letters) for step in steps] == [50, 32, 18, 0]


def test_a_canary_is_sent_once_by_all_together(ledgers, store, time):
    one, other = ledgers(canary=3)
    first, second = one.take(), other.take()
    assert (ids(first), ids(second)) == (["a", "b"], ["c"])
    assert one.take().waits_for == other.take().waits_for == "the canary"
    sent(one, first)
    sent(other, second)
    ended(store, time, "a", "b")
    time.pass_(LOOK_S)
    assert one.take().waits_for == "the canary"
    ended(store, time, "c")
    time.pass_(LOOK_S)
    assert ids(other.take()) == ["d", "e"]


def test_a_canary_that_fails_stops_all_and_is_recorded_once(ledgers, store, time):
    one, other = ledgers(canary=2)
    first = one.take()
    sent(one, first)
    ended(store, time, "a", "b", fails=True)
    time.pass_(LOOK_S)
    assert one.take().is_over
    assert other.take().is_over
    assert other.close().state is OperationState.ABORTED
    assert "the canary failed" in other.operation.cause
    assert len(store.audit.find(act="abort").rows) == 1


def test_the_guard_keeps_one_window_for_all_and_stops_all(ledgers, store, time):
    one, other = ledgers(guard=Guard(window=3, in_a_row=2))
    first, second = one.take(), other.take()
    assert (ids(first), ids(second)) == (["a", "b"], ["c"])
    assert other.take().waits_for.startswith("outcomes")
    sent(one, first)
    sent(other, second)
    ended(store, time, "a", "c", fails=True)
    time.pass_(LOOK_S)
    assert other.take().is_over
    assert one.take().is_over
    assert "2 in a row came back" in one.close().cause


def test_outcomes_that_only_one_process_has_seen_make_no_room_twice(ledgers, store, time):
    one, other = ledgers(max_in_flight=2)
    first = one.take()
    sent(one, first)
    ended(store, time, "a", "b")
    time.pass_(LOOK_S)
    assert (ids(one.take()), ids(other.take())) == (["c", "d"], [])


def test_the_rate_holds_for_all_together(ledgers, time):
    one, other = ledgers(rate=8.0)  # two letters for each step
    assert ids(one.take()) == ["a", "b"]
    assert other.take().wait_s == pytest.approx(STEP_S)
    time.pass_(STEP_S / 2)
    assert one.take().wait_s == pytest.approx(STEP_S / 2)
    time.pass_(STEP_S / 2)
    assert (ids(other.take()), ids(one.take())) == (["c", "d"], [])
    # A long wait makes no burst.
    time.pass_(60.0)
    steps = [one.take(), other.take(), one.take()]
    assert [len(step.letters) for step in steps] == [2, 2, 0]


def test_a_pause_stops_a_process_that_has_not_looked_yet(ledgers, store, time):
    one, other = ledgers()
    assert one.take().letters
    store.operations.move(one.operation.id, OperationState.PAUSED, who="ann", now=time.now)
    assert one.take().is_over
    assert other.take().is_over


def test_it_is_not_done_while_another_process_holds_letters(ledgers, store, time):
    one, other = ledgers(planned=9)  # one more than there are
    for _ in range(3):
        step = one.take()
        sent(one, step)
    held = other.take()
    for _ in range(3):
        step = one.take()
        assert (step.letters, step.is_over) == ((), False)
        time.pass_(WAIT_S)
    other.mark(BatchResult(token=held.token, unsent=ids(held)))
    time.pass_(LOOK_S)
    assert ids(one.take()) == ids(held)


def test_letters_of_a_process_that_died_are_sent_by_the_other(ledgers, store, time):
    one, other = ledgers()
    lost = one.take()
    lease = store.leases.take(
        one.operation.lease_names[0], holder="operation.0a1b2c3d4e5f", seconds=9
    )
    store.leases.give_up(lease)
    (taken,) = send_all(other, time=time)
    assert sorted(taken) == list("abcdefgh")
    assert store.sendings.of_letter(ids(lost)[0])[0].redrive == 1
    # It was only slow: what it has sent is marked, and it stops.
    sent(one, lost)
    time.pass_(LOOK_S)
    assert one.take().is_over


def test_a_claim_that_fails_leaves_no_letter_in_hand_for_longer_than_its_lease(
    ledgers, store, time, monkeypatch
):
    one, other = ledgers()
    take = store.claims.take

    def away(*given, **options):
        raise StoreError("away")

    monkeypatch.setattr(store.claims, "take", away)
    with pytest.raises(StoreError):
        one.take()
    monkeypatch.setattr(store.claims, "take", take)
    time.now += timedelta(seconds=61)
    (taken,) = send_all(other, time=time)
    assert sorted(taken) == list("abcdefgh")
    assert other.close().state is OperationState.DONE
