"""Claims and marks of one operation, which several threads make at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from support.factories import attempt, letter, operation

from celery_dlq.errors import StoreError
from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import Counts, Guard, OperationState, Orders, Pacing
from celery_dlq.redrive.ledger import LOOK_S, BatchResult, Ledger


@pytest.fixture
def ledger_of(store, fill, time):
    """A ledger over the letters a, b and c, of an operation that was planned for this many."""
    fill(*"abc")

    def ledger_of(planned):
        made = operation(
            state=OperationState.RUNNING, counts=Counts(planned=planned), created_at=time.now
        )
        store.operations.create(made)
        return Ledger(
            store, made, time.clock, batch=5, lease_s=60.0, should_stop=lambda: False,
        )  # fmt: skip

    return ledger_of


@pytest.fixture
def ledger(ledger_of):
    return ledger_of(planned=3)


def meanwhile(monkeypatch, store, act):
    """Let something happen after the next claim is committed, before the ledger has its letters."""
    ask, acts = store.claims.take, [act]

    def asking(*args, **options):
        answer = ask(*args, **options)
        if acts:
            acts.pop()()
        return answer

    monkeypatch.setattr(store.claims, "take", asking)


def away(*args, **options):
    raise StoreError("away")


def test_letters_that_come_back_while_more_are_claimed_are_not_the_end(
    ledger_of, store, monkeypatch
):
    # One more than there are, as when another redrive has taken it: the ledger asks for it in vain.
    ledger = ledger_of(planned=4)
    first = ledger.take()
    ids = [one.task_id for one in first.letters]
    meanwhile(monkeypatch, store, lambda: ledger.mark(BatchResult(token=first.token, unsent=ids)))
    taken = ledger.take()
    assert (taken.letters, taken.is_end, ledger.is_done) == ((), False, False)
    assert {one.task_id for one in ledger.take().letters} == {"a", "b", "c"}


def test_claims_do_not_wait_for_a_mark(ledger, store, monkeypatch):
    monkeypatch.setattr(ledger, "_batch", 2)
    first, mark = ledger.take(), store.claims.confirm
    sent = dict.fromkeys((one.task_id for one in first.letters), "")
    with ThreadPoolExecutor(1) as beside:

        def marking(*args, **options):
            assert not beside.submit(lambda: ledger.has_much).result(timeout=60)
            assert len(beside.submit(ledger.take).result(timeout=60).letters) == 1
            return mark(*args, **options)

        monkeypatch.setattr(store.claims, "confirm", marking)
        ledger.mark(BatchResult(token=first.token, sent=sent))
    assert ledger.counts == Counts(planned=3, sent=2, sending=1)


def test_letters_marked_during_a_claim_are_counted_once(ledger, store, monkeypatch):
    monkeypatch.setattr(ledger, "_batch", 2)
    first = ledger.take()
    sent = dict.fromkeys((one.task_id for one in first.letters), "")
    meanwhile(monkeypatch, store, lambda: ledger.mark(BatchResult(token=first.token, sent=sent)))
    second = ledger.take()
    assert ledger.counts == Counts(planned=3, sent=2, sending=1)
    ledger.mark(BatchResult(token=second.token, sent={second.letters[0].task_id: ""}))
    assert ledger.take().is_end
    assert ledger.close().state is OperationState.DONE
    assert ledger.counts == Counts(planned=3, sent=3)


def test_simultaneous_claims_share_one_allowance(ledger, store, monkeypatch):
    pacing = Orders(pacing=Pacing(max_in_flight=2), guard=Guard(enabled=False))
    assert ledger.may_continue()  # the look at the start
    monkeypatch.setattr(ledger, "operation", replace(ledger.operation, orders=pacing))
    beside = []
    meanwhile(monkeypatch, store, lambda: beside.append(ledger.take()))
    assert len(ledger.take().letters) == 2
    (other,) = beside
    assert (other.letters, other.is_end) == ((), False)
    assert other.waits_for


def test_a_mark_makes_no_room_for_more_than_the_canary(ledger, store, time, monkeypatch):
    orders = Orders(pacing=Pacing(canary=2))
    assert ledger.may_continue()  # the look at the start
    monkeypatch.setattr(ledger, "operation", replace(ledger.operation, orders=orders))
    first = ledger.take()
    ended = Outcome(task_id="a", redrive=1, succeeded_at=time.now, worker="w")
    store.letters.record_outcomes([ended])
    look = store.operations.get
    monkeypatch.setattr(
        store.operations,
        "get",
        lambda operation_id: replace(look(operation_id), orders=orders),
    )
    time.pass_(LOOK_S)
    assert ledger.may_continue()
    ledger.mark(BatchResult(token=first.token, sent={"a": "", "b": ""}))
    assert ledger.take().letters == ()
    assert (ledger.counts.succeeded, ledger.counts.sent) == (1, 1)


def test_letters_that_a_claim_did_not_take_are_left(ledger_of, store, monkeypatch):
    ledger = ledger_of(planned=9)
    taken = ledger.take()
    assert (len(taken.letters), ledger.counts.sending) == (3, 3)
    monkeypatch.setattr(store.claims, "take", away)
    with pytest.raises(StoreError):
        ledger.take()
    assert ledger.counts.sending == 3


def test_an_empty_claim_is_not_the_end_while_another_one_is_made(ledger_of, store, monkeypatch):
    ledger = ledger_of(planned=9)
    monkeypatch.setattr(ledger, "_batch", 2)
    beside = []
    meanwhile(monkeypatch, store, lambda: beside.extend([ledger.take(), ledger.take()]))
    assert len(ledger.take().letters) == 2
    last, none = beside
    assert (len(last.letters), none.letters, none.is_end) == (1, (), False)


@pytest.mark.parametrize(
    ("planned", "batch", "rate", "much"),
    [(9, 4, None, True), (9, 9, None, False), (9, 4, 50.0, False)],
)
def test_two_claims_at_once_need_many_letters_and_no_rate(
    ledger_of, monkeypatch, planned, batch, rate, much
):
    ledger = ledger_of(planned)
    orders = Orders(pacing=Pacing(rate=rate))
    monkeypatch.setattr(ledger, "operation", replace(ledger.operation, orders=orders))
    monkeypatch.setattr(ledger, "_batch", batch)
    assert ledger.has_much is much


def outcomes(store, time, *names):
    store.letters.record_outcomes(
        [Outcome(task_id=one, redrive=1, succeeded_at=time.now, worker="w") for one in names]
    )


def look(ledger, time):
    time.pass_(LOOK_S)
    return ledger.may_continue()


def test_outcomes_that_come_before_the_mark_are_counted_once(ledger, store, time):
    first = ledger.take()
    outcomes(store, time, "a", "b")
    assert look(ledger, time)
    assert ledger.counts == Counts(planned=3, sending=1, succeeded=2, unmarked=2)
    assert (ledger.counts.out, ledger.counts.in_flight, ledger.counts.unclaimed) == (2, 1, 0)
    ledger.mark(BatchResult(token=first.token, sent={"a": "", "b": "", "c": ""}))
    assert ledger.counts == Counts(planned=3, succeeded=2, sent=1)
    assert look(ledger, time)
    assert ledger.counts == Counts(planned=3, succeeded=2, sent=1)


def test_outcomes_before_the_mark_make_no_room_twice(ledger, store, time, monkeypatch):
    monkeypatch.setattr(ledger, "_batch", 2)
    assert ledger.may_continue()
    orders = Orders(pacing=Pacing(max_in_flight=2), guard=Guard(enabled=False))
    look_up = store.operations.get
    monkeypatch.setattr(store.operations, "get", lambda one: replace(look_up(one), orders=orders))
    first = ledger.take()
    outcomes(store, time, "a")
    assert look(ledger, time)
    second = ledger.take()
    assert len(second.letters) == 1, "one has ended, so one more may be in flight"
    ledger.mark(BatchResult(token=first.token, sent={"a": "", "b": ""}))
    assert ledger.take().letters == ()
    assert ledger.counts.in_flight == 2


def test_the_store_decides_whether_nothing_is_left(ledger, store, time, monkeypatch):
    first = ledger.take()
    ledger.mark(BatchResult(token=first.token, sent={"a": "", "b": "", "c": ""}))
    look_up = store.operations.get

    def one_left(operation_id):
        found = look_up(operation_id)
        return replace(found, counts=replace(found.counts, sent=2))

    monkeypatch.setattr(store.operations, "get", one_left)
    step = ledger.take()
    assert (step.is_end, ledger.is_done) == (False, False)
    looks = []

    def looking(operation_id):
        looks.append(operation_id)
        return look_up(operation_id)

    monkeypatch.setattr(store.operations, "get", looking)
    assert ledger.may_continue()
    assert looks, "the guard judges the outcomes before the letter that is left is sent"
    assert ledger.take().is_end
    assert ledger.is_done


def test_the_guard_judges_outcomes_before_they_make_room(ledger, store, time, monkeypatch):
    """Another thread that asks meanwhile has no room from outcomes that the guard is still judging."""
    orders = Orders(pacing=Pacing(max_in_flight=1), guard=Guard(in_a_row=1))
    look_up, judge = store.operations.get, store.sendings.recent_endings
    monkeypatch.setattr(store.operations, "get", lambda one: replace(look_up(one), orders=orders))
    assert look(ledger, time)
    first = ledger.take()
    [one] = first.letters
    ledger.mark(BatchResult(token=first.token, sent={one.task_id: ""}))
    store.letters.save([letter(one.task_id, attempt(redrive=1, minutes=90))])
    seen = []

    def judging(*asked):
        seen.append(ledger.counts.in_flight)
        return judge(*asked)

    monkeypatch.setattr(store.sendings, "recent_endings", judging)
    assert not look(ledger, time)
    assert seen == [1]
    assert ledger.operation.state is OperationState.ABORTED
