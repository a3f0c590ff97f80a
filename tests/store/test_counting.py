"""A count is what a listing shows, whether it is read from the rollups or made of the letters."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import product

import pytest
import redriving
from factories import T0, attempt, envelope, letter, parking
from statements import statements_of

from celery_dlq.letter import Outcome
from celery_dlq.states import Reason, State
from celery_dlq.store import counting
from celery_dlq.store.base import Filter

TASKS = ("shop.charge", "shop.ship", "bank.charge")
REASONS = (Reason.TERMINAL, Reason.UNSTORED)
NOON = T0 + timedelta(minutes=30)
LEASE_S = timedelta(hours=9)


@pytest.fixture
def shop(store):
    """A letter of each task, reason, group and queue, some of them on their way or closed."""
    made = [
        letter(
            f"{number:02}",
            attempt(minutes=number),
            task=task,
            reason=reason,
            fingerprint=f"{group}{number % 2}",
            exception_type=f"shop.{group}",
            envelope=envelope(f"{number:02}", queue=queue),
        )
        for number, (task, reason, group, queue) in enumerate(
            [*product(TASKS, REASONS, ("Declined", "Late"), ("slow", "fast"))] * 2
        )
    ]
    store.save(made)
    waiting = [parking("98", 60.0), parking("99", 60.0, task="shop.ship")]
    assert store.park(waiting, now=T0) == 2
    assert store.discard(Filter(ids=("03", "17")), who="ann", why="", now=NOON) == 2
    store.record_outcomes(
        [Outcome(task_id=one, redrive=0, succeeded_at=NOON, worker="w") for one in ("04", "21")]
    )
    claim(store, "held", ("05", "20"))
    claim(store, "sent", ("06", "22"))
    redriving.confirm(store, "sent", ("06", "22"))
    redriving.end(store, "sent", ("06", "22"))
    return store


def claim(store, token: str, ids) -> None:
    wanted = Filter(ids=ids)
    held = redriving.claim(
        store, wanted, token=token, lease_until=NOON + LEASE_S, limit=9, now=NOON
    )
    assert len(held.letters) == len(ids)


NARROWED = [
    {},
    {"task": "charge"},
    {"task": "shop.charge", "exception": "Late"},
    {"exception": "shop.Declined"},
    {"queue": "slow"},
    {"queue": "fast", "reason": Reason.UNSTORED, "task": "ship"},
    {"without_reasons": frozenset({Reason.UNSTORED})},
    {"without_reasons": frozenset({Reason.MALFORMED}), "group": "Late"},
    {"without_reasons": frozenset({Reason.UNSTORED}), "group": "Late1"},
    {"group": "Declined0", "queue": "slow"},
    {"group": "Declined", "task": "bank.charge"},
    {"task": "nobody"},
]
BY_STATES = [
    (),
    (State.DEAD,),
    (State.DEAD, State.REDRIVEN),
    (State.DEAD, State.CLAIMED, State.PARKED),
    (State.CLAIMED, State.REDRIVEN),
    (State.RESOLVED, State.DEAD),
    tuple(State),
]
BY_TIME = [
    {},
    {"until": T0 + timedelta(minutes=20, seconds=30)},
    {"since": T0 + timedelta(minutes=9)},
]


@pytest.mark.parametrize("late_limit", [counting.LATE_LIMIT, 0])
def test_a_count_is_what_a_listing_shows(shop, monkeypatch, late_limit):
    monkeypatch.setattr(counting, "LATE_LIMIT", late_limit)
    for narrowed, states, time in product(NARROWED, BY_STATES, BY_TIME):
        wanted = Filter(**narrowed, **time, states=frozenset(states))
        listed = Counter(one.task for one in shop.find(wanted, limit=100).letters)
        assert shop.count_by_task(wanted) == listed, wanted
        assert shop.count(wanted) == listed.total(), wanted


@pytest.mark.parametrize(
    "narrowed",
    [
        {"task": "charge", "without_reasons": frozenset({Reason.MALFORMED})},
        {"queue": "slow"},
        {"group": "Late1", "without_reasons": frozenset({Reason.MALFORMED})},
    ],
    ids=["task", "queue", "group"],
)
def test_an_act_on_all_that_was_there_reads_no_letters_that_wait(shop, narrowed):
    """Only those are read that are on their way or came late."""
    wanted = Filter(**narrowed, states=frozenset({State.DEAD}), until=T0 + timedelta(hours=2))
    read = statements_of(shop, lambda: shop.count_by_task(wanted))
    of_letters = [one for one, _ in read if "FROM celery_dead_letter \n" in one]
    late = [one for one in of_letters if "last_failed_at >=" in one]
    moving = [values for one, values in read if one in of_letters and one not in late]
    assert (len(late), len(moving)) == (1, 1)
    assert State.DEAD.value not in str(moving[0])
