"""Messages of different tasks under one id: each has its letter, whole."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.factories import T0, attempt, envelope, letter
from support.stores import redriving

from celery_dlq.model.letter import Outcome
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter

pytestmark = pytest.mark.usefixtures("counts_hold_in_the_end")


def death(task: str, at: float = 0, redrive: int = 0, task_id: str = "17", **changes):
    body = f'[["{task}"], {{}}, {{}}]'.encode()
    return letter(
        task_id,
        attempt(1, redrive, at),
        task=task,
        envelope=envelope(task_id, body=body),
        **changes,
    )


def letters(store):
    page = store.letters.find(Filter(states=frozenset(State)), limit=100)
    return {found.task: store.letters.get(found.task_id) for found in page.letters}


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.on_servers
def test_each_keeps_its_own_message(store, together):
    both = [death("shop.charge"), death("mail.send", at=1)]
    for batch in [both] if together else [[one] for one in both]:
        store.letters.save(batch)
    found = letters(store)
    assert found.keys() == {"shop.charge", "mail.send"}
    assert found["shop.charge"].task_id == "17"
    assert found["mail.send"].task_id.startswith("17~")
    assert [one.envelope.body for one in found.values()].count(b'[["mail.send"], {}, {}]') == 1


def test_a_second_delivery_of_either_makes_no_third_letter(store):
    for at in (0, 5):
        store.letters.save([death("shop.charge", at), death("mail.send", at + 1)])
    found = letters(store)
    assert len(found) == 2
    assert {len(one.attempts) for one in found.values()} == {2}


def test_a_redriven_one_comes_back_to_the_letter_that_it_names(store):
    store.letters.save([death("shop.charge"), death("mail.send", at=1)])
    second = letters(store)["mail.send"].task_id
    claim = redriving.claim(
        store,
        Filter(ids=(second,)),
        token="t",
        lease_until=T0 + timedelta(hours=1),
        limit=5,
        now=T0,
    )
    redriving.confirm(store, "t", [one.task_id for one in claim.letters])
    store.letters.save([death("mail.send", at=9, redrive=1, task_id=second)])
    again = letters(store)["mail.send"]
    assert (again.task_id, again.redrive_count, again.state) == (second, 1, State.DEAD)
    assert len(letters(store)) == 2


@pytest.mark.on_servers
def test_a_closed_letters_id_is_free_for_another_task(store):
    store.letters.save([death("shop.charge")])
    store.letters.record_outcomes(
        [Outcome(task_id="17", redrive=0, succeeded_at=T0 + timedelta(hours=1), worker="w")]
    )
    store.letters.save([death("mail.send", at=120)])
    assert letters(store).keys() == {"mail.send"}
    assert letters(store)["mail.send"].task_id == "17"


def succeed(store, task: str, redrive: int = 0, task_id: str = "17"):
    success = Outcome(
        task_id=task_id, redrive=redrive, succeeded_at=T0 + timedelta(hours=1), worker="w", task=task
    )  # fmt: skip
    return store.letters.record_outcomes([success])


def test_a_success_of_another_task_closes_no_letter(store):
    store.letters.save([death("shop.charge")])
    succeed(store, "mail.send")
    assert letters(store)["shop.charge"].state is State.DEAD


@pytest.mark.parametrize("task", ["shop.charge", "mail.send"])
@pytest.mark.on_servers
def test_a_success_closes_the_letter_of_its_own_task(store, task):
    store.letters.save([death("shop.charge"), death("mail.send", at=1)])
    succeed(store, task)
    [closed] = [name for name, one in letters(store).items() if one.state is State.RESOLVED]
    assert closed == task


def test_the_success_of_a_redrive_closes_the_letter_that_it_names_whatever_the_task(store):
    store.letters.save([death("shop.charge")])
    succeed(store, "shop.charge_by_hand", redrive=1)
    assert letters(store)["shop.charge"].state is State.RESOLVED


@pytest.mark.parametrize("task", ["", "t" * 300])
def test_the_success_of_a_task_whose_name_is_unknown_or_cut_closes_its_letter(store, task):
    store.letters.save([death(task or "shop.charge")])
    succeed(store, task)
    assert [one.state for one in letters(store).values()] == [State.RESOLVED]


@pytest.mark.on_servers
def test_a_name_that_is_cut_is_not_another_name(store):
    for at in (0, 1):
        store.letters.save([death("t" * 300, at)])
    assert len(letters(store)) == 1
