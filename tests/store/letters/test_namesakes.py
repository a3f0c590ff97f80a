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


def test_a_closed_letters_id_is_free_for_another_task(store):
    store.letters.save([death("shop.charge")])
    store.letters.record_outcomes(
        [Outcome(task_id="17", redrive=0, succeeded_at=T0 + timedelta(hours=1), worker="w")]
    )
    store.letters.save([death("mail.send", at=120)])
    assert letters(store).keys() == {"mail.send"}
    assert letters(store)["mail.send"].task_id == "17"


def test_a_name_that_is_cut_is_not_another_name(store):
    for at in (0, 1):
        store.letters.save([death("t" * 300, at)])
    assert len(letters(store)) == 1
