"""Claims and marks of one operation, which two threads may make at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from celery_dlq import Filter
from celery_dlq.errors import StoreError
from celery_dlq.letter import Outcome
from celery_dlq.operation import Counts, Guard, OperationState, Orders, Pacing
from celery_dlq.redrive.ledger import Ledger, Settled


@pytest.fixture
def ledger(operations, store, fill, time):
    fill(*"abc")
    made = operations.make(Filter(), Orders(), who="tester", detached=False)
    running = store.move_operation(
        made.id, OperationState.RUNNING, who="tester", now=time.clock.now()
    )
    return Ledger(
        store, running, batch=5, lease_s=60.0, now=time.clock.now, monotonic=time.clock.monotonic,
        should_stop=lambda: False,
    )  # fmt: skip


def meanwhile(monkeypatch, store, act):
    """Let something happen right after the next claim has asked the store, before it has its answer."""
    ask, acts = store.claim_for, [act]

    def asking(*args, **options):
        answer = ask(*args, **options)
        if acts:
            acts.pop()()
        return answer

    monkeypatch.setattr(store, "claim_for", asking)


def away(*args, **options):
    raise StoreError("away")


def test_what_comes_back_while_more_is_asked_for_is_not_the_end(ledger, store, monkeypatch):
    first = ledger.take()
    ids = [one.task_id for one in first.letters]
    # As when others have taken some: it does not know beforehand that there is nothing.
    ledger.counts = Counts(planned=4, sending=3)
    meanwhile(monkeypatch, store, lambda: ledger.settle(Settled(token=first.token, unsent=ids)))
    taken = ledger.take()
    assert (taken.letters, taken.is_over, ledger.is_done) == ((), False, False)
    assert {one.task_id for one in ledger.take().letters} == {"a", "b", "c"}


def test_who_claims_or_sends_does_not_wait_for_a_mark(ledger, store, monkeypatch):
    monkeypatch.setattr(ledger, "_batch", 2)
    first, mark = ledger.take(), store.end_claim
    sent = dict.fromkeys((one.task_id for one in first.letters), "")
    with ThreadPoolExecutor(1) as beside:

        def marking(*args, **options):
            assert not beside.submit(lambda: ledger.has_much).result(timeout=20)
            assert len(beside.submit(ledger.take).result(timeout=20).letters) == 1
            return mark(*args, **options)

        monkeypatch.setattr(store, "end_claim", marking)
        ledger.settle(Settled(token=first.token, sent=sent))
    assert ledger.counts == Counts(planned=3, sent=2, sending=1)


def test_what_was_marked_while_more_was_claimed_is_counted_once(ledger, store, monkeypatch):
    monkeypatch.setattr(ledger, "_batch", 2)
    first = ledger.take()
    sent = dict.fromkeys((one.task_id for one in first.letters), "")
    meanwhile(monkeypatch, store, lambda: ledger.settle(Settled(token=first.token, sent=sent)))
    second = ledger.take()
    assert ledger.counts == Counts(planned=3, sent=2, sending=1)
    ledger.settle(Settled(token=second.token, sent={second.letters[0].task_id: ""}))
    assert ledger.take().is_over
    assert ledger.close().state is OperationState.DONE
    assert ledger.counts == Counts(planned=3, sent=3)


def test_claims_at_the_same_time_take_no_more_than_there_is_room_for(ledger, store, monkeypatch):
    pacing = Orders(pacing=Pacing(max_in_flight=2), guard=Guard(enabled=False))
    assert ledger.goes_on()  # it looks at the store once
    monkeypatch.setattr(ledger, "operation", replace(ledger.operation, orders=pacing))
    beside = []
    meanwhile(monkeypatch, store, lambda: beside.append(ledger.take()))
    assert len(ledger.take().letters) == 2
    (other,) = beside
    assert (other.letters, other.is_over) == ((), False)
    assert other.waits_for


def test_a_mark_makes_no_room_beside_a_canary(ledger, store, time, monkeypatch):
    orders = Orders(pacing=Pacing(canary=2))
    assert ledger.goes_on()  # it looks at the store once
    monkeypatch.setattr(ledger, "operation", replace(ledger.operation, orders=orders))
    first = ledger.take()
    ended = Outcome(task_id="a", redrive=1, succeeded_at=time.now, worker="w")
    store.record_outcomes([ended])
    look = store.operation
    monkeypatch.setattr(
        store, "operation", lambda operation_id: replace(look(operation_id), orders=orders)
    )
    ledger._refresh()
    ledger.settle(Settled(token=first.token, sent={"a": "", "b": ""}))
    assert ledger.take().letters == ()
    assert (ledger.counts.succeeded, ledger.counts.sent) == (1, 1)


def test_what_a_claim_did_not_take_is_left(ledger, store, monkeypatch):
    assert ledger.goes_on()
    ledger.counts = Counts(planned=9)
    taken = ledger.take()
    assert (len(taken.letters), ledger.counts.sending) == (3, 3)
    monkeypatch.setattr(store, "claim_for", away)
    with pytest.raises(StoreError):
        ledger.take()
    assert ledger.counts.sending == 3


def test_while_another_claim_is_made_nothing_is_over(ledger, store, monkeypatch):
    monkeypatch.setattr(ledger, "_batch", 2)
    assert ledger.goes_on()
    ledger.counts = Counts(planned=9)
    beside = []
    meanwhile(monkeypatch, store, lambda: beside.extend([ledger.take(), ledger.take()]))
    assert len(ledger.take().letters) == 2
    last, none = beside
    assert (len(last.letters), none.letters, none.is_over) == (1, (), False)


@pytest.mark.parametrize(
    ("planned", "batch", "rate", "much"),
    [(9, 4, None, True), (9, 9, None, False), (9, 4, 50.0, False)],
)
def test_two_claims_at_once_are_for_many_letters_that_are_sent_at_no_rate(
    ledger, monkeypatch, planned, batch, rate, much
):
    orders = Orders(pacing=Pacing(rate=rate))
    monkeypatch.setattr(ledger, "operation", replace(ledger.operation, orders=orders))
    monkeypatch.setattr(ledger, "_batch", batch)
    ledger.counts = Counts(planned=planned)
    assert ledger.has_much is much
