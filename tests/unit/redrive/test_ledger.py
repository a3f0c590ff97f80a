"""Claims and marks of one operation, which two threads may make at a time."""

from __future__ import annotations

import pytest

from celery_dlq import Filter
from celery_dlq.operation import Counts, OperationState, Orders
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


def test_what_comes_back_while_more_is_asked_for_is_not_the_end(ledger, store, monkeypatch):
    first = ledger.take()
    ids = [one.task_id for one in first.letters]
    # As when others have taken some: it does not know beforehand that there is nothing.
    ledger.counts = Counts(planned=4, sending=3)
    meanwhile(monkeypatch, store, lambda: ledger.settle(Settled(token=first.token, unsent=ids)))
    taken = ledger.take()
    assert (taken.letters, taken.is_over, ledger.is_done) == ((), False, False)
    assert {one.task_id for one in ledger.take().letters} == {"a", "b", "c"}


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
