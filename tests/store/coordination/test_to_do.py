from __future__ import annotations

import pytest
from support.factories import T0, operation

from celery_dlq.model.operation import OperationState

pytestmark = pytest.mark.on_servers


def test_a_lease_is_free_until_it_is_taken_and_when_it_is_given_up(store):
    assert store.leases.to_do("upkeep").lease_free_in_s == 0.0
    held = store.leases.take("upkeep", holder="one", seconds=60)
    assert 50 < store.leases.to_do("upkeep").lease_free_in_s <= 60
    assert store.leases.to_do("another").lease_free_in_s == 0.0
    store.leases.give_up(held)
    assert store.leases.to_do("upkeep").lease_free_in_s == 0.0


def test_a_lease_that_was_given_up_is_another_one_when_it_is_taken_again(store):
    held = store.leases.take("one", holder="me", seconds=60)
    store.leases.give_up(held)
    assert store.leases.take("one", holder="me", seconds=60).token != held.token


def test_a_lease_that_ended_stays_with_its_holder_unless_another_had_it(store):
    ended = store.leases.take("one", holder="me", seconds=-1)
    assert store.leases.take("one", holder="me", seconds=-1) == ended
    others = store.leases.take("one", holder="another", seconds=-1)
    mine = store.leases.take("one", holder="me", seconds=60)
    assert len({ended.token, others.token, mine.token}) == 3
    assert store.leases.take("one", holder="another", seconds=60) is None


def test_the_leases_of_a_process_that_is_gone_are_ended(store):
    for name, holder in (
        ("one", "boot/1:7:9/a"),
        ("two", "boot/1:7:9/b"),
        ("three", "boot/1:7:99/c"),
    ):
        store.leases.take(name, holder=holder, seconds=60)
    store.leases.end_of("boot/1:7:9")
    assert [store.leases.to_do(name).lease_free_in_s > 0 for name in ("one", "two", "three")] == [
        False, False, True,
    ]  # fmt: skip
    assert store.leases.take("one", holder="boot/1:8:8/d", seconds=60).token == 2


@pytest.mark.parametrize("detached", [True, False])
def test_an_operation_is_to_be_done_once_it_waits_for_a_worker_or_runs(store, detached):
    assert store.leases.to_do("upkeep").operations is False
    store.operations.create(operation("op", detached=detached))
    assert store.leases.to_do("upkeep").operations is detached
    store.operations.move("op", OperationState.RUNNING, who="tester", cause="", now=T0)
    assert store.leases.to_do("upkeep").operations is True
    store.operations.move("op", OperationState.PAUSED, who="tester", cause="", now=T0)
    assert store.leases.to_do("upkeep").operations is False
