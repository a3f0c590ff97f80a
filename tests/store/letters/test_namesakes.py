"""Different messages under one id, of one task or of several: each has its letter, whole."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.factories import T0, attempt, envelope, letter
from support.stores import redriving

from celery_dlq.model.letter import Outcome, digest_of
from celery_dlq.model.states import State
from celery_dlq.store.base import Edit, Filter

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


def called(argument: str, at: float = 0, redrive: int = 0, task_id: str = "17", **changes):
    """The death of ``shop.charge``, called with ``argument``."""
    one = death("shop.charge", at, redrive, task_id, **changes)
    return one.with_(
        args=[argument], envelope=envelope(task_id, body=f'[["{argument}"], {{}}, {{}}]'.encode())
    )


def arguments(store):
    """What each letter was called with, by its id."""
    page = store.letters.find(Filter(states=frozenset(State)), limit=100)
    return {one.task_id: one.args[0] for one in page.letters}


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


def succeed(store, task: str, redrive: int = 0, digest: str | None = None):
    digest = digest_of(death(task).envelope.body) if digest is None else digest
    success = Outcome(
        task_id="17", redrive=redrive, succeeded_at=T0 + timedelta(hours=1), worker="w", task=task,
        digest=digest,
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


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.on_servers
def test_a_call_with_other_arguments_is_a_letter_of_its_own(store, together):
    both = [called("a"), called("b", at=1)]
    for batch in [both] if together else [[one] for one in both]:
        store.letters.save(batch)
    found = {argument: store.letters.get(key) for key, argument in arguments(store).items()}
    assert (found["a"].task_id, found["b"].task_id[:3]) == ("17", "17~")
    assert found["b"].envelope.body == b'[["b"], {}, {}]'
    assert "another message has the id 17" in found["b"].explanation.evidence
    assert "another message" not in found["a"].explanation.evidence


def test_deliveries_of_either_stay_in_their_letters(store):
    for at in (0, 5, 10):
        store.letters.save([called("b", at + 1), called("a", at)])
    assert sorted(arguments(store).values()) == ["a", "b"]
    assert all(len(store.letters.get(key).attempts) == 3 for key in arguments(store))


def test_an_edited_letter_is_still_that_of_its_message(store):
    store.letters.save([called("a")])
    stored = store.letters.get("17")
    repaired = called("c").envelope
    assert store.edits.save(
        Edit(
            task_id="17", before=stored.envelope, after=repaired, args=["c"], kwargs={},
            diff="a -> c", who="ann", why="", at=T0, release="",
        )
    )  # fmt: skip
    store.letters.save([called("a", at=5)])
    store.letters.save([called("c", at=6, redrive=1)])
    assert arguments(store) == {"17": "c"}


@pytest.mark.parametrize("argument", ["a", "b"])
@pytest.mark.on_servers
def test_a_success_closes_the_letter_of_its_own_call(store, argument):
    store.letters.save([called("a"), called("b", at=1)])
    digest = digest_of(called(argument).envelope.body)
    succeed(store, "shop.charge", digest=digest)
    [closed] = [key for key in arguments(store) if store.letters.get(key).state is State.RESOLVED]
    assert arguments(store)[closed] == argument


def test_a_success_of_a_call_that_has_no_letter_closes_none(store):
    store.letters.save([called("a")])
    assert not succeed(store, "shop.charge", digest=digest_of(called("b").envelope.body))


def test_a_success_that_an_earlier_release_has_spooled_closes_its_letter(store):
    store.letters.save([called("a")])
    assert succeed(store, "shop.charge", digest="")
