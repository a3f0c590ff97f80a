from __future__ import annotations

from datetime import timedelta

import pytest
from support.factories import T0, attempt, envelope, letter
from support.stores import redriving

from celery_dlq.model.letter import Explanation, Outcome
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.store.base import Filter, Saved

pytestmark = pytest.mark.usefixtures("counts_hold_in_the_end")


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def failure(redrive: int = 0, at: float = 0, task_id: str = "0d3f", **changes):
    return letter(task_id, attempt(1, redrive, at), **changes)


def claim(store, token: str = "t", **filters):
    return redriving.claim(
        store, Filter(**filters), token=token, lease_until=minutes(60), limit=10, now=minutes(1)
    )


def redrive(store, token: str = "t"):
    """Claim and confirm every dead letter."""
    held = claim(store, token)
    redriving.confirm(store, token, [item.task_id for item in held.letters])


def resolve(store, redrive: int = 1, at: float = 10, task_id: str = "0d3f"):
    success = Outcome(task_id=task_id, redrive=redrive, succeeded_at=minutes(at), worker="celery@b")
    return store.letters.record_outcomes([success])


def state(store, task_id: str = "0d3f"):
    return store.letters.get(task_id).state


@pytest.mark.on_servers
@pytest.mark.clear("it compares letters with their key")
def test_a_letter_comes_back_whole(store):
    whole = letter(
        "0d3f",
        attempt(1, minutes=0, delay_s=0.25, verdict=Verdict.TRANSIENT, rule="http.status"),
        attempt(2, minutes=1.000001),
        explanation=Explanation(
            verdict=Verdict.TERMINAL, rule="python.bug", evidence="type=ValueError", path="a < b"
        ),
        reason=Reason.EXHAUSTED,
        parent_id="parent",
        group_id="group",
        canvas="chord",
        tags=("billing", "eu"),
    )
    assert store.letters.save([whole]) == Saved(arrived=1, known=0)
    assert store.letters.get("0d3f") == whole.with_(attempt_count=2)


def test_an_empty_batch_saves_nothing(store):
    assert store.letters.save([]) == Saved(arrived=0, known=0)
    assert store.letters.get("0d3f") is None


@pytest.mark.on_servers
def test_the_same_capture_twice_is_one_letter(store):
    assert store.letters.save([failure()]) == Saved(arrived=1, known=0)
    assert store.letters.save([failure()]) == Saved(arrived=0, known=1)
    assert store.letters.save([failure(), failure()]) == Saved(arrived=0, known=2)
    assert len(store.letters.get("0d3f").attempts) == 1


@pytest.mark.on_servers
def test_repeated_failures_within_one_batch_are_merged(store):
    other = failure(task_id="9c1e")
    assert store.letters.save([failure(), other, failure()]) == Saved(arrived=2, known=1)
    assert store.monitoring.stats(T0).depth == 2


@pytest.mark.on_servers
def test_a_batch_may_hold_two_redrives_of_one_letter_in_any_order(store):
    assert store.letters.save([failure(1, 5), failure(0, 0)]) == Saved(arrived=2, known=0)
    found = store.letters.get("0d3f")
    assert found.last_failed_at == minutes(5)
    assert found.redrive_count == 1
    assert found.first_failed_at == T0
    assert found.attempt_count == 2


@pytest.mark.on_servers
def test_a_repeated_capture_brings_the_attempts_that_were_missing(store):
    store.letters.save([letter("0d3f", attempt(2, minutes=1))])
    store.letters.save([letter("0d3f", attempt(1), attempt(2, minutes=1))])
    found = store.letters.get("0d3f")
    assert [item.number for item in found.attempts] == [1, 2]
    assert found.attempt_count == 2


@pytest.mark.clear("it compares letters with their key")
def test_a_redriven_letter_that_fails_again_is_the_same_letter_dead_again(store):
    store.letters.save([failure()])
    redrive(store)
    again = failure(
        1, 5, exception_type="KeyError", message="'currency'", traceback="Traceback 2", args=["other"],
        fingerprint="0000feedfacecafe", reason=Reason.TIMEOUT, worker="celery@b", pid=1, release="2",
        explanation=Explanation(verdict=Verdict.TRANSIENT, rule="x", evidence="e", path="p"),
        envelope=envelope("0d3f", body=b"[[18], {}, {}]"),
    )  # fmt: skip
    assert store.letters.save([again]) == Saved(arrived=1, known=0)
    found = store.letters.get("0d3f")
    first = failure()
    assert found == again.with_(
        attempts=(*first.attempts, *again.attempts),
        attempt_count=2,
        redrive_count=1,
        first_failed_at=T0,
        args=first.args,
        envelope=first.envelope,
        message_release=first.release,
    )


@pytest.mark.on_servers
def test_a_renewed_failure_moves_the_letter_to_its_new_group(store):
    store.letters.save([failure()])
    redrive(store)
    store.letters.save([failure(1, 5, fingerprint="0000feedfacecafe", exception_type="KeyError")])
    (group,) = store.groups.find(Filter(), now=T0)
    assert (group.fingerprint, group.open_count, group.total_count) == ("0000feedfacecafe", 1, 1)
    assert store.monitoring.stats(T0).by_exception == {"KeyError": 1}


def test_a_renewed_failure_in_the_same_group_counts_in_its_total(store):
    store.letters.save([failure()])
    redrive(store)
    store.letters.save([failure(1, 5)])
    (group,) = store.groups.find(Filter(), now=T0)
    assert (group.open_count, group.total_count) == (1, 2)
    assert (group.first_seen_at, group.last_seen_at) == (T0, minutes(5))


@pytest.mark.on_servers
def test_a_failure_that_overtakes_its_confirmation_frees_the_claim(store):
    store.letters.save([failure()])
    held = claim(store)
    assert store.letters.save([failure(1, 5)]) == Saved(arrived=1, known=0)
    found = store.letters.get("0d3f")
    assert (found.state, found.redrive_count) == (State.DEAD, 1)
    assert (found.claim_token, found.lease_expires_at) == (None, None)
    assert redriving.confirm(store, held.token, ["0d3f"]) == 0
    assert store.letters.get("0d3f").redrive_count == 1


def test_a_copy_of_the_original_does_not_disturb_the_redrive_under_way(store):
    store.letters.save([failure()])
    redrive(store)
    assert store.letters.save([failure(0, 5)]) == Saved(arrived=0, known=1)
    found = store.letters.get("0d3f")
    assert (found.state, found.last_failed_at, found.attempt_count) == (State.REDRIVEN, T0, 2)


def test_a_copy_of_the_original_does_not_disturb_a_claim(store):
    store.letters.save([failure()])
    held = claim(store)
    store.letters.save([failure(0, 5)])
    assert store.letters.get("0d3f").state is State.CLAIMED
    assert redriving.confirm(store, held.token, ["0d3f"]) == 1


def test_a_later_account_of_the_same_run_refreshes_the_letter_without_another_arrival(store):
    store.letters.save([failure()])
    assert store.letters.save([failure(0, 5, message="later")]) == Saved(arrived=0, known=1)
    found = store.letters.get("0d3f")
    assert (found.message, found.last_failed_at) == ("later", minutes(5))
    assert store.groups.find(Filter(), now=T0)[0].total_count == 1


def test_a_refreshed_letter_takes_its_arrival_along_to_another_group(store):
    store.letters.save([failure()])
    store.letters.save([failure(0, 5, fingerprint="0000feedfacecafe")])
    (group,) = store.groups.find(Filter(), now=T0)
    assert (group.fingerprint, group.open_count, group.total_count) == ("0000feedfacecafe", 1, 1)


def test_an_earlier_failure_that_comes_late_is_history_only(store):
    store.letters.save([failure(0, 5)])
    assert store.letters.save([failure(0, 0, message="old")]) == Saved(arrived=0, known=1)
    found = store.letters.get("0d3f")
    assert (found.message, found.last_failed_at) == ("bad currency", minutes(5))
    assert [item.failed_at for item in found.attempts] == [T0, minutes(5)]


def test_a_redrive_whose_confirmation_was_lost_counts_when_it_fails(store):
    store.letters.save([failure()])
    claim(store)
    assert store.claims.rescue(minutes(61)) == 1
    assert store.letters.save([failure(1, 5)]) == Saved(arrived=1, known=0)
    assert store.letters.get("0d3f").redrive_count == 1


@pytest.mark.parametrize("closing", ["resolved", "discarded"])
def test_a_late_copy_of_an_old_failure_leaves_a_closed_letter_closed(store, closing):
    store.letters.save([failure()])
    close(store, closing)
    assert store.letters.save([failure(0, 3)]) == Saved(arrived=0, known=1)
    found = store.letters.get("0d3f")
    assert found.state.value == closing
    assert found.attempt_count == 2


@pytest.mark.parametrize("closing", ["resolved", "discarded"])
def test_a_redrive_that_fails_after_the_closing_reopens_the_letter(store, closing):
    store.letters.save([failure()])
    redrive(store)
    close(store, closing)
    assert store.letters.save([failure(1, 20)]) == Saved(arrived=1, known=0)
    found = store.letters.get("0d3f")
    assert (found.state, found.closed_at, found.closed_by, found.closed_reason) == (
        State.DEAD, None, "", "",
    )  # fmt: skip
    assert found.envelope == failure().envelope


def test_a_redrive_that_failed_by_a_slow_clock_reopens_a_discarded_letter(store):
    store.letters.save([failure()])
    close(store, "discarded")
    assert store.letters.save([failure(1, -5)]) == Saved(arrived=1, known=0)
    assert state(store) is State.DEAD


@pytest.mark.on_servers
@pytest.mark.clear("it compares letters with their key")
def test_another_message_under_a_closed_letters_id_replaces_it(store):
    store.letters.save([failure()])
    close(store, "resolved")
    other = failure(
        0, 20, task="shop.refund", args=[18], kwargs={}, fingerprint="0000feedfacecafe",
        envelope=envelope("0d3f", body=b"[[18], {}, {}]", headers={"id": "0d3f", "n": b"\xff"}),
    )  # fmt: skip
    assert store.letters.save([other]) == Saved(arrived=1, known=0)
    found = store.letters.get("0d3f")
    assert found == other.with_(
        attempts=(*failure().attempts, *other.attempts), attempt_count=2, redrive_count=1
    )


def test_a_letter_without_any_attempt_is_saved_once(store):
    bare = letter("0d3f").with_(attempts=())
    assert store.letters.save([bare]) == Saved(arrived=1, known=0)
    assert store.letters.save([bare]) == Saved(arrived=0, known=1)
    assert store.letters.get("0d3f").attempts == ()


@pytest.mark.on_servers
def test_a_big_batch_is_one_save(store):
    batch = [failure(task_id=f"{number:04}") for number in range(1200)]
    assert store.letters.save(batch) == Saved(arrived=1200, known=0)
    assert store.letters.save(batch) == Saved(arrived=0, known=1200)
    assert store.counts.letters(Filter()) == 1200


def close(store, how: str) -> None:
    if how == "resolved":
        assert resolve(store) == 1
    else:
        states = frozenset({State.DEAD, State.REDRIVEN})
        assert (
            store.closing.discard(Filter(states=states), who="ann", why="old", now=minutes(10)) == 1
        )


def test_the_brokers_record_of_a_death_does_not_replace_the_workers(store):
    reported = failure(at=0, message="bad currency")
    store.letters.save([reported])
    ingested = failure(at=1, reason=Reason.INGESTED, message="rejected in queue 'orders'")
    assert store.letters.save([ingested]) == Saved(arrived=0, known=1)
    stored = store.letters.get("0d3f")
    assert (stored.reason, stored.message) == (reported.reason, reported.message)
    assert [item.failed_at for item in stored.attempts] == [minutes(0), minutes(1)]
