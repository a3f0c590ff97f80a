from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.factories import T0, attempt, letter

from celery_dlq.model.letter import Outcome
from celery_dlq.model.states import OPEN_STATES, Reason, State
from celery_dlq.store.rows.merge import (
    ARRIVALS,
    UNCHANGED,
    Effect,
    Facts,
    attempt_key,
    merge,
    redrive_of,
    resolves,
)


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def facts(state: State = State.DEAD, **changes) -> Facts:
    values = {
        "state": state,
        "redrive_count": 0,
        "last_redrive": 0,
        "last_failed_at": T0,
        "closed_at": None if state in OPEN_STATES else minutes(10),
        "attempts": frozenset({(0, 1, T0)}),
    }
    return Facts(**{**values, **changes})


def failure(redrive: int, at: float, number: int = 1):
    """A letter whose last attempt belongs to ``redrive`` and failed ``at`` minutes after T0."""
    return letter("0d3f", attempt(number, redrive, at))


def test_an_unknown_letter_arrives_with_its_attempts():
    first, second = attempt(1), attempt(2, minutes=1)
    change = merge(None, letter("0d3f", first, second))
    assert change.effect is Effect.ARRIVED
    assert change.attempts == (first, second)
    assert change.facts == Facts(
        state=State.DEAD,
        redrive_count=0,
        last_redrive=0,
        last_failed_at=minutes(1),
        attempts=frozenset({attempt_key(first), attempt_key(second)}),
    )


def test_an_attempt_told_twice_in_one_letter_is_kept_once():
    assert merge(None, letter("0d3f", attempt(1), attempt(1))).attempts == (attempt(1),)


def test_a_letter_of_a_redrive_that_this_store_never_saw_begins_with_its_count():
    change = merge(None, failure(redrive=2, at=0))
    assert change.effect is Effect.ARRIVED
    assert (change.facts.redrive_count, change.facts.last_redrive) == (2, 2)


@pytest.mark.parametrize("state", State)
def test_a_failure_that_is_stored_already_changes_nothing(state):
    stored = facts(state)
    change = merge(stored, failure(redrive=0, at=0))
    assert change.effect is Effect.KNOWN
    assert change.attempts == ()
    assert change.facts == stored


def test_a_repeated_capture_still_brings_attempts_that_were_missing():
    earlier, last = attempt(1, minutes=-1), attempt(1)
    change = merge(facts(), letter("0d3f", earlier, last))
    assert change.effect is Effect.KNOWN
    assert change.attempts == (earlier,)
    assert not change.rewrites


OPEN_CASES = [
    # stored state, its redrive count, its last redrive; the failure's redrive and minute; effect
    ("dead, another account of the same run, later", State.DEAD, 0, 0, 0, 5, Effect.REFRESHED),
    ("dead, an earlier run", State.DEAD, 0, 0, 0, -5, Effect.HISTORY),
    ("dead, a redrive whose confirmation was lost", State.DEAD, 0, 0, 1, 5, Effect.DIED_AGAIN),
    (
        "dead, a clock that is behind: the redrive counts",
        State.DEAD,
        0,
        0,
        1,
        -5,
        Effect.DIED_AGAIN,
    ),
    ("dead, an older redrive", State.DEAD, 2, 2, 1, 5, Effect.HISTORY),
    ("redriven, that redrive failed", State.REDRIVEN, 1, 0, 1, 5, Effect.DIED_AGAIN),
    ("redriven, a copy of the original failed", State.REDRIVEN, 1, 0, 0, 5, Effect.HISTORY),
    ("redriven twice, the first one failed", State.REDRIVEN, 2, 0, 1, 5, Effect.HISTORY),
    ("redriven, a later redrive failed", State.REDRIVEN, 1, 0, 2, 5, Effect.DIED_AGAIN),
]


@pytest.mark.parametrize(
    ("state", "count", "last", "redrive", "at", "effect"),
    [case[1:] for case in OPEN_CASES],
    ids=[case[0] for case in OPEN_CASES],
)
def test_a_failure_of_an_open_letter(state, count, last, redrive, at, effect):
    stored = facts(state, redrive_count=count, last_redrive=last)
    change = merge(stored, failure(redrive, at))
    assert change.effect is effect
    assert len(change.attempts) == 1
    if effect is Effect.HISTORY:
        assert change.facts.state is state
        assert change.facts.last_failed_at == T0
    else:
        assert change.facts.state is State.DEAD
        assert change.facts.last_redrive == redrive
        assert change.facts.redrive_count == max(count, redrive)
        assert change.facts.last_failed_at == minutes(at)


CLOSED_CASES = [
    ("failed before it was closed", 1, 1, 5, Effect.HISTORY),
    ("failed at the moment it was closed", 1, 1, 10, Effect.HISTORY),
    ("failed after it was closed", 1, 1, 11, Effect.REOPENED),
    ("a later redrive failed, by a clock that is behind", 1, 2, 5, Effect.REOPENED),
    ("the original failed before", 1, 0, 5, Effect.HISTORY),
    ("a first delivery failed after: another message", 1, 0, 11, Effect.REUSED),
]


@pytest.mark.parametrize("state", [State.RESOLVED, State.DISCARDED])
@pytest.mark.parametrize(
    ("count", "redrive", "at", "effect"),
    [case[1:] for case in CLOSED_CASES],
    ids=[case[0] for case in CLOSED_CASES],
)
def test_a_failure_of_a_closed_letter(state, count, redrive, at, effect):
    change = merge(facts(state, redrive_count=count), failure(redrive, at))
    assert change.effect is effect
    assert change.facts.state is (state if effect is Effect.HISTORY else State.DEAD)
    if effect is not Effect.HISTORY:
        assert change.facts.closed_at is None
        assert change.facts.redrive_count == max(count, redrive)


def test_a_letter_without_attempts_is_placed_by_its_own_count():
    bare = letter("0d3f").with_(attempts=(), redrive_count=1, last_failed_at=minutes(5))
    assert redrive_of(bare) == 1
    assert merge(facts(State.REDRIVEN, redrive_count=1), bare).effect is Effect.DIED_AGAIN


OUTCOME_CASES = [
    ("a later redrive, though its clock is behind", 1, -5, 0, True),
    ("the redrive that failed, in a copy that ran later", 0, 5, 0, True),
    ("at the very moment of the failure", 0, 0, 0, True),
    ("a copy that ran before the failure", 0, -5, 0, False),
    ("an older redrive that ran before the failure", 1, -5, 2, False),
    ("an older redrive that ran after the failure", 1, 5, 2, True),
]


@pytest.mark.parametrize("state", sorted(OPEN_STATES))
@pytest.mark.parametrize(
    ("redrive", "at", "last", "expected"),
    [case[1:] for case in OUTCOME_CASES],
    ids=[case[0] for case in OUTCOME_CASES],
)
def test_a_success_resolves_an_open_letter(state, redrive, at, last, expected):
    success = Outcome(task_id="0d3f", redrive=redrive, succeeded_at=minutes(at), worker="w")
    assert resolves(facts(state, last_redrive=last, redrive_count=last), success) is expected


@pytest.mark.parametrize("state", [State.RESOLVED, State.DISCARDED])
def test_a_success_leaves_a_closed_letter_alone(state):
    success = Outcome(task_id="0d3f", redrive=9, succeeded_at=minutes(99), worker="w")
    assert not resolves(facts(state), success)


attempts = st.builds(attempt, st.integers(1, 3), st.integers(0, 3), st.integers(-5, 5))
letters = st.lists(attempts, min_size=1, max_size=3).map(
    lambda runs: letter("0d3f", *sorted(runs, key=lambda run: (run.redrive, run.failed_at)))
)
stored_facts = st.builds(
    lambda state, count, last, at: facts(
        state, redrive_count=max(count, last), last_redrive=last, last_failed_at=minutes(at)
    ),
    st.sampled_from(State),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(-5, 5),
)


@given(stored_facts, letters)
def test_saving_the_same_failure_again_is_known_and_changes_nothing(stored, copy):
    once = merge(stored, copy)
    again = merge(once.facts, copy)
    assert again.effect is Effect.KNOWN
    assert again.attempts == ()
    assert again.facts == once.facts


@given(stored_facts, letters)
def test_no_failure_is_forgotten_and_no_count_goes_back(stored, copy):
    change = merge(stored, copy)
    assert {attempt_key(item) for item in copy.attempts} <= change.facts.attempts
    assert stored.attempts <= change.facts.attempts
    assert change.facts.redrive_count >= stored.redrive_count


@given(stored_facts, letters)
def test_saving_a_failure_closes_nothing_and_either_rewrites_or_leaves_the_state(stored, copy):
    change = merge(stored, copy)
    if change.effect in UNCHANGED:
        assert change.facts.state is stored.state
    else:
        assert change.facts.state is State.DEAD
    if stored.state not in OPEN_STATES and change.rewrites:
        assert change.effect in ARRIVALS


@given(st.permutations([(0, 0), (0, 3), (1, 5), (2, 7)]))
def test_an_unclaimed_letter_ends_the_same_in_whatever_order_its_failures_come(order):
    stored = None
    for redrive, at in order:
        stored = merge(stored, failure(redrive, at)).facts
    assert stored.last_redrive == 2
    assert stored.last_failed_at == minutes(7)
    assert len(stored.attempts) == 4


class TestIngested:
    """The broker's account of a death that a worker may have told of already."""

    def ingested(self, redrive: int, at: float):
        return failure(redrive, at).with_(reason=Reason.INGESTED)

    @pytest.mark.parametrize("at", [-1, 1])
    def test_the_worker_s_account_of_a_waiting_letter_stays(self, at):
        change = merge(facts(), self.ingested(0, at))
        assert change.effect is Effect.HISTORY
        assert len(change.attempts) == 1

    def test_the_worker_s_account_replaces_the_broker_s(self):
        assert merge(facts(), failure(0, 1)).effect is Effect.REFRESHED

    def test_a_redrive_that_died_in_the_broker_opens_its_letter(self):
        sent = facts(State.REDRIVEN, redrive_count=1)
        assert merge(sent, self.ingested(1, 5)).effect is Effect.DIED_AGAIN
        assert merge(sent, self.ingested(0, 5)).effect is Effect.HISTORY

    @pytest.mark.parametrize(
        ("at", "effect"), [(9, Effect.HISTORY), (11, Effect.REUSED)], ids=["before", "after"]
    )
    def test_a_closed_letter_is_opened_by_a_death_after_its_closing(self, at, effect):
        assert merge(facts(State.DISCARDED), self.ingested(0, at)).effect is effect


# -- clocks that jump ------------------------------------------------------------------------------

jumps = st.timedeltas(min_value=timedelta(days=-4_000), max_value=timedelta(days=4_000))


@given(jumps, st.integers(0, 3))
def test_a_renewed_failure_makes_a_letter_dead_again_whatever_the_clocks_say(jump, before):
    """A redrive's number decides, not the time: the worker's clock may be years off either way."""
    stored = Facts(
        state=State.REDRIVEN,
        redrive_count=before + 1,
        last_redrive=before,
        last_failed_at=T0,
    )
    change = merge(stored, letter("a", attempt(redrive=before + 1, failed_at=T0 + jump)))
    assert change.effect is Effect.DIED_AGAIN
    assert change.facts.state is State.DEAD


@given(jumps, st.sampled_from([State.DEAD, State.REDRIVEN]))
def test_a_redrives_success_resolves_whatever_the_clocks_say(jump, state):
    stored = Facts(state=state, redrive_count=1, last_redrive=0, last_failed_at=T0)
    outcome = Outcome(task_id="a", redrive=1, succeeded_at=T0 + jump, worker="w")
    assert resolves(stored, outcome)


@given(jumps)
def test_a_later_redrives_failure_opens_a_closed_letter_whatever_the_clocks_say(jump):
    stored = Facts(
        state=State.RESOLVED, redrive_count=1, last_redrive=0, last_failed_at=T0, closed_at=T0
    )
    change = merge(stored, letter("a", attempt(redrive=2, failed_at=T0 + jump)))
    assert change.effect is Effect.REOPENED


@given(jumps)
def test_a_waiting_letter_stays_open_whatever_the_clocks_say(jump):
    stored = Facts(state=State.DEAD, redrive_count=0, last_redrive=0, last_failed_at=T0)
    change = merge(stored, letter("a", attempt(redrive=0, failed_at=T0 + jump)))
    assert change.facts.state is State.DEAD
