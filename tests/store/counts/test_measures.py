from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from support.factories import T0, attempt, delivery, envelope, letter, operation, parking
from support.stores import redriving
from support.stores.rollup_checks import assert_counts_hold

from celery_dlq.errors import FilterError
from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import OperationState
from celery_dlq.model.states import Reason, State
from celery_dlq.model.worker import CircuitState
from celery_dlq.store.base import Cell, Edit, Filter
from celery_dlq.store.database import tables


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def at(task_id: str, number: float = 0, *, queue: str = "celery", redrive: int = 0, **changes):
    run = attempt(minutes=number, redrive=redrive)
    return letter(task_id, run, envelope=envelope(task_id, queue=queue), **changes)


def success(task_id: str, redrive: int, number: float = 90) -> Outcome:
    return Outcome(
        task_id=task_id, redrive=redrive, succeeded_at=minutes(number), worker="celery@host"
    )


def sent(store, *ids: str) -> None:
    redriving.claim(
        store, Filter(ids=ids), token="t", lease_until=minutes(99), limit=9, now=minutes(30)
    )
    redriving.confirm(store, "t", list(ids))


def cell(store, **names) -> Cell:
    [found] = [
        cell
        for cell in store.monitoring.measures().cells
        if all(getattr(cell, name) == value for name, value in names.items())
    ]
    return found


def test_letters_are_counted_by_task_queue_reason_and_exception(store):
    store.letters.save(
        [
            at("a"),
            at("b", 3),
            at("c", queue="mail"),
            at("d", reason=Reason.EXHAUSTED),
            at("e", exception_type="KeyError"),
            at("f", task="shop.ship"),
        ]
    )
    cells = store.monitoring.measures().cells
    assert sorted((one.open, one.arrived) for one in cells) == [(1, 1)] * 4 + [(2, 2)]
    assert cell(store, queue="mail").reason is Reason.TERMINAL
    assert cell(store, open=2) == Cell(
        task="shop.charge", queue="celery", reason=Reason.TERMINAL, exception_type="ValueError",
        open=2, arrived=2, succeeded=0, failed=0, first_seen_at=T0,
    )  # fmt: skip


def test_a_discarded_letter_is_no_longer_open_but_has_arrived(store):
    store.letters.save([at("a"), at("b")])
    store.closing.discard(Filter(ids=("a",)), who="ann", why="", now=minutes(5))
    assert (cell(store).open, cell(store).arrived) == (1, 2)
    store.closing.undiscard(Filter(ids=("a",)), who="ann", now=minutes(6))
    assert (cell(store).open, cell(store).arrived) == (2, 2)
    assert_counts_hold(store)


def test_outcomes_of_redrives_are_counted_once(store):
    store.letters.save([at("good"), at("bad")])
    sent(store, "good", "bad")
    for _ in range(2):
        store.letters.record_outcomes([success("good", 1)])
        store.letters.save([at("bad", 40, redrive=1)])
    found = cell(store)
    assert (found.open, found.arrived, found.succeeded, found.failed) == (1, 3, 1, 1)
    assert_counts_hold(store)


def test_a_success_without_a_redrive_does_not_count_for_redrives(store):
    store.letters.save([at("a")])
    store.letters.record_outcomes([success("a", 0)])
    assert (cell(store).open, cell(store).succeeded) == (0, 0)


def test_a_letter_that_dies_of_another_exception_moves(store):
    store.letters.save([at("a")])
    sent(store, "a")
    store.letters.save([at("a", 40, redrive=1, queue="elsewhere", reason=Reason.TIMEOUT)])
    assert cell(store, reason=Reason.TERMINAL).open == 0
    # The stored message, and with it the queue, stays that of the first failure.
    assert cell(store, reason=Reason.TIMEOUT).queue == "celery"
    assert_counts_hold(store)


def test_a_letter_whose_message_goes_to_another_queue_moves(store):
    store.letters.save([at("a")])
    before = store.letters.get("a").envelope
    after = replace(before, queue="mail")
    assert store.edits.save(
        Edit(
            task_id="a", before=before, after=after, args=[], kwargs={}, diff="",
            who="ann", at=minutes(1),
        )
    )  # fmt: skip
    assert (cell(store, queue="celery").open, cell(store, queue="mail").open) == (0, 1)
    assert_counts_hold(store)


def test_names_that_end_where_others_begin_are_told_apart(store):
    store.letters.save([at("a", task="ab", queue="c"), at("b", task="a", queue="bc")])
    assert len(store.monitoring.measures().cells) == 2


def test_the_store_in_numbers(store):
    store.letters.save([at("a", 7), at("b", 3), at("c", 9)])
    redriving.claim(
        store, Filter(ids=("b",)), token="t", lease_until=minutes(99), limit=1, now=minutes(10)
    )
    store.parked.park([parking("p", 60), parking("late", -900)], now=T0)
    store.deliveries.put(delivery("x", death="WorkerLostError: signal 9"))
    store.deliveries.put(delivery("y"))
    found = store.monitoring.measures()
    assert found.open == {State.DEAD: 2, State.CLAIMED: 1, State.REDRIVEN: 0}
    assert found.oldest_open_at == minutes(3)
    assert (found.parked, found.deaths, found.circuits) == (2, 1, {})


def test_an_empty_store_in_numbers(store):
    found = store.monitoring.measures()
    assert (found.cells, found.oldest_open_at, found.aborted_at) == ((), None, None)
    assert (found.parked, found.overdue, found.deaths) == (0, 0, 0)
    assert set(found.operations.values()) == {0}


def test_a_retry_that_no_worker_releases_is_overdue(store):
    def age(connection):
        connection.execute(tables.parked.update().values(due_at=T0))

    store.parked.park([parking("p", 60)], now=T0)
    assert store.monitoring.measures().overdue == 0
    store.database.write(age)
    assert store.monitoring.measures().overdue == 1


def test_operations_are_counted_by_state(store):
    for number in range(2):
        store.operations.create(operation(f"{number}"))
    store.operations.move("1", OperationState.RUNNING, who="ann", now=minutes(1))
    store.operations.move("1", OperationState.ABORTED, who="the guard", now=minutes(2))
    found = store.monitoring.measures()
    assert found.operations[OperationState.PLANNED] == found.operations[OperationState.ABORTED] == 1
    assert found.aborted_at == minutes(2)


def test_circuits_that_are_not_closed_are_counted_by_task(store):
    def as_(state):
        return lambda circuit, now: replace(circuit, state=state, opened_at=now)

    store.circuits.change(
        {
            ("shop.charge", "ann"): as_(CircuitState.OPEN),
            ("shop.charge", "bob"): as_(CircuitState.OPEN),
            ("shop.mail", ""): as_(CircuitState.CLOSED),
        }
    )
    assert store.monitoring.measures().circuits == {("shop.charge", CircuitState.OPEN): 2}


class TestOldest:
    def test_the_oldest_of_the_letters_asked_for_counts(self, store):
        store.letters.save([at("a", 7), at("b", 3, queue="mail"), at("c", 9)])
        store.parked.park([parking("p", 60)], now=T0)
        assert store.letters.oldest(Filter()) == minutes(3)
        assert store.letters.oldest(Filter(queue="celery")) == minutes(7)
        assert store.letters.oldest(Filter(queue="none")) is None
        assert store.letters.oldest(Filter(states=frozenset({State.PARKED}))) == T0

    def test_closed_letters_do_not_count(self, store):
        store.letters.save([at("a", 7), at("b", 3)])
        store.closing.discard(Filter(ids=("b",)), who="ann", why="", now=minutes(5))
        assert store.letters.oldest(Filter()) == minutes(7)


class TestArrivals:
    def test_they_are_counted_by_minute(self, store):
        store.letters.save([at("a", 0), at("b", 4.9), at("c", 5), at("d", 10)])
        assert store.counts.arrivals(Filter(), since=T0, until=minutes(5)) == 2
        assert store.counts.arrivals(Filter(), since=minutes(5), until=minutes(10)) == 1
        assert store.counts.arrivals(Filter(), since=minutes(20), until=minutes(30)) == 0

    def test_they_are_narrowed_by_task_and_exception(self, store):
        store.letters.save(
            [at("a"), at("b", task="shop.ship"), at("c", exception_type="x.KeyError")]
        )
        bounds = {"since": T0, "until": minutes(1)}
        assert store.counts.arrivals(Filter(task="ship"), **bounds) == 1
        assert store.counts.arrivals(Filter(exception="KeyError"), **bounds) == 1

    def test_other_filters_are_refused_rather_than_ignored(self, store):
        with pytest.raises(FilterError, match="not kept by queue or reason"):
            store.counts.arrivals(
                Filter(queue="mail", reason=Reason.TIMEOUT), since=T0, until=minutes(1)
            )
