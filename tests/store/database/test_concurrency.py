from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import text
from support.factories import T0, attempt, letter, operation
from support.stores import redriving
from support.stores.rollup_checks import assert_counts_hold

from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import Counts, OperationState
from celery_dlq.model.states import State
from celery_dlq.redrive.context import Clock
from celery_dlq.redrive.ledger import LOCKED, Ledger
from celery_dlq.store.base import Filter
from celery_dlq.store.redrive.claims import Claims
from celery_dlq.store.sql import SQLStore

pytestmark = pytest.mark.on_servers

WRITERS = 6


@pytest.fixture
def patient(store):
    """The store with time limits for many writers on a busy machine."""
    patient = SQLStore(store.database.url.render_as_string(hide_password=False), timeout=30)
    yield patient
    patient.close()


def at_once(*works: Callable[[], object]) -> list[object]:
    """The results of ``works``, all of which begin at the same moment."""
    barrier = threading.Barrier(len(works))

    def run(work):
        barrier.wait(timeout=30)
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


def numbered(start: int, stop: int, step: int = 1, **changes):
    return [letter(f"{number:04}", **changes) for number in range(start, stop, step)]


def test_overlapping_batches_save_every_letter_once(patient):
    batches = [numbered(start * 20, start * 20 + 120) for start in range(WRITERS)]
    # In the opposite order, too, because the store sorts them.
    batches = [batch[::-1] if number % 2 else batch for number, batch in enumerate(batches)]
    saved = at_once(*(lambda batch=batch: patient.letters.save(batch) for batch in batches))
    assert sum(item.arrived for item in saved) == patient.monitoring.stats(T0).depth == 220
    assert_counts_hold(patient)


def test_the_same_batch_from_every_writer_arrives_once(patient):
    saved = at_once(*[lambda: patient.letters.save(numbered(0, 50))] * WRITERS)
    assert sum(item.arrived for item in saved) == 50
    assert sum(item.known for item in saved) == 50 * (WRITERS - 1)
    assert_counts_hold(patient)


def test_renewed_failures_outcomes_and_acts_at_once_leave_the_counts_right(patient):
    patient.letters.save(numbered(0, 120))
    again = [letter(f"{number:04}", attempt(1, 1, 5)) for number in range(0, 120, 2)]
    ran = [
        Outcome(task_id=f"{number:04}", redrive=2, succeeded_at=T0, worker="w")
        for number in range(119, 0, -3)
    ]
    at_once(
        lambda: patient.letters.save(again),
        lambda: patient.letters.save(again[::-1]),
        lambda: patient.letters.record_outcomes(ran),
        lambda: patient.closing.discard(Filter(), who="ann", why="", now=T0),
        lambda: patient.closing.undiscard(Filter(), who="bob", now=T0),
        lambda: claim(patient, "t", 30),
    )
    assert_counts_hold(patient)
    assert patient.counts.letters(Filter(states=frozenset(State))) == 120


def claim(store, token: str, limit: int):
    later = T0 + timedelta(hours=1)
    return redriving.claim(store, Filter(), token=token, lease_until=later, limit=limit, now=T0)


def test_claims_at_once_take_different_letters(patient):
    patient.letters.save(numbered(0, 200))

    def take_all(name: str) -> dict[str, list[str]]:
        taken: dict[str, list[str]] = {}
        while letters := claim(patient, token := f"{name}.{len(taken)}", 15).letters:
            taken[token] = [item.task_id for item in letters]
        return taken

    shares = at_once(*(lambda n=n: take_all(f"t{n}") for n in range(WRITERS)))
    taken = [name for share in shares for names in share.values() for name in names]
    assert sorted(taken) == [f"{number:04}" for number in range(200)]
    for share in shares:
        for token, names in share.items():
            assert redriving.confirm(patient, token, names) == len(names)


def test_a_claim_does_not_wait_for_another_that_is_under_way(store):
    if store.database.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    store.letters.save(numbered(0, 20))
    if store.database.dialect.name == "mysql":
        # With the statistics of the table before that, it may read, and so lock, all rows.
        analyze = text("ANALYZE TABLE celery_dead_letter")
        store.database.write(lambda connection: connection.execute(analyze).close())
    with store.database.engine.connect() as connection:
        now = {"lease_until": T0, "limit": 5, "now": T0}
        # Its transaction ends later.
        take = partial(Claims.take.__wrapped__, store.claims.within(connection))
        first = take(operation("first"), token="first", **now)
        second = claim(store, "second", 5)
        connection.commit()
    assert not {item.task_id for item in first.letters} & {item.task_id for item in second.letters}
    assert len(second.letters) == 5


def test_letters_that_a_broken_connection_has_locked_are_left(store):
    if store.database.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    store.letters.save(numbered(0, 5))
    with store.database.engine.connect() as connection:
        now = {"lease_until": T0, "limit": 5, "now": T0}
        take = partial(Claims.take.__wrapped__, store.claims.within(connection))
        assert len(take(operation("first"), token="first", **now).letters) == 5
        assert claim(store, "second", 5).letters == ()
        assert store.claims.are_left(operation("second"))
        connection.rollback()
    assert len(claim(store, "third", 5).letters) == 5
    assert not store.claims.are_left(operation("fourth"))


def test_a_redrive_waits_for_letters_that_a_broken_connection_has_locked(store):
    """An empty claim is not the end. That connection may have been this process's own."""
    if store.database.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    store.letters.save(numbered(0, 5))
    store.operations.create(operation(counts=Counts(planned=5), state=OperationState.RUNNING))
    ledger = Ledger(
        store, store.operations.get(operation().id), Clock(now=lambda: T0), batch=5, lease_s=60,
        should_stop=lambda: False,
    )  # fmt: skip
    with store.database.engine.connect() as connection:
        now = {"lease_until": T0, "limit": 5, "now": T0}
        take = partial(Claims.take.__wrapped__, store.claims.within(connection))
        take(operation("first"), token="first", **now)
        step = ledger.take()
        assert (step.is_end, step.letters, step.waits_for) == (False, (), LOCKED)
        assert not ledger.is_done
        connection.rollback()
    assert len(ledger.take().letters) == 5


def test_a_success_and_a_confirmation_at_once_end_resolved(patient):
    patient.letters.save(numbered(0, 60))
    held = [item.task_id for item in claim(patient, "t", 60).letters]
    ran = [Outcome(task_id=name, redrive=1, succeeded_at=T0, worker="w") for name in held[::-1]]
    _, resolved = at_once(
        lambda: redriving.confirm(patient, "t", held), lambda: patient.letters.record_outcomes(ran)
    )
    assert resolved == 60
    assert patient.counts.letters(Filter(states=frozenset({State.RESOLVED}))) == 60
    assert {
        item.redrive_count for item in patient.letters.find(Filter(states=frozenset(State))).letters
    } == {1}
    assert_counts_hold(patient)
