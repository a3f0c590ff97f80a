"""A count is what a listing shows, whether it is read from the rollups or counted from the letters."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest
from support.factories import T0, attempt, envelope, letter, parking
from support.stores import redriving
from support.stores.statements import statements_of

from celery_dlq.errors import StoreError
from celery_dlq.model.letter import Outcome
from celery_dlq.model.states import Reason, State
from celery_dlq.store.base import Filter, Number
from celery_dlq.store.letters import counting

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
    store.letters.save(made)
    waiting = [parking("98", 60.0), parking("99", 60.0, task="shop.ship")]
    assert store.parked.park(waiting, now=T0) == 2
    assert store.closing.discard(Filter(ids=("03", "17")), who="ann", why="", now=NOON) == 2
    store.letters.record_outcomes(
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
        listed = Counter(one.task for one in shop.letters.find(wanted, limit=100).letters)
        assert shop.counts.by_task(wanted) == listed, wanted
        assert shop.counts.letters(wanted) == listed.total(), wanted


@pytest.mark.parametrize(
    "narrowed",
    [
        {"task": "charge", "without_reasons": frozenset({Reason.MALFORMED})},
        {"queue": "slow"},
        {"group": "Late1", "without_reasons": frozenset({Reason.MALFORMED})},
    ],
    ids=["task", "queue", "group"],
)
def test_an_act_on_all_letters_of_a_moment_reads_no_letters_that_wait(shop, narrowed):
    """Only letters that are on their way, or that came late, are read."""
    wanted = Filter(**narrowed, states=frozenset({State.DEAD}), until=T0 + timedelta(hours=2))
    read = letters_read(shop, wanted)
    late = [one for one, _ in read if "last_failed_at >=" in one]
    moving = [values for one, values in read if one not in late]
    assert (len(late), len(moving)) == (1, 1)
    assert State.DEAD.value not in str(moving[0])


def letters_read(store, wanted: Filter) -> list[tuple[str, list[str]]]:
    """The queries that a count makes of the letters, each with its values, moments to the minute."""
    return [
        (part, values)
        for statement, given in statements_of(store, lambda: store.counts.by_task(wanted))
        for part, values in parts_of(statement, given)
        if re.search(r"(FROM|JOIN) celery_dead_letter ", part)
    ]


def parts_of(statement: str, given) -> Iterator[tuple[str, list[str]]]:
    values = iter(() if isinstance(given, dict) else given)
    for part in statement.split("UNION ALL"):
        names = re.findall(r"%\((\w+)\)s", part)
        unnamed = itertools.islice(values, len(re.findall(r"\?|%s", part)))
        yield part, [str(one)[:16] for one in (*(given[name] for name in names), *unnamed)]


@pytest.fixture
def busy_hour(store):
    """Most letters of the hour died at its twentieth minute."""
    store.letters.save([letter(f"{number:02}", attempt(minutes=20)) for number in range(9)])
    store.letters.save([letter("late", attempt(minutes=50)), letter("next", attempt(minutes=70))])
    return store


def test_letters_of_a_group_whose_reasons_are_left_out_are_read(busy_hour):
    away = {"reason": Reason.UNSTORED, "exception_type": "Away", "fingerprint": "77aa"}
    busy_hour.letters.save([letter("apart", attempt(minutes=70), **away)])
    busy_hour.letters.save([letter("other", attempt(minutes=70), fingerprint="77ab")])
    wanted = Filter(group="77", without_reasons=frozenset({Reason.UNSTORED}))
    assert busy_hour.counts.letters(wanted) == 1
    [(part, values)] = letters_read(busy_hour, wanted)
    assert "reason IN" in part
    assert "Away" in values
    assert letters_read(busy_hour, replace(wanted, exception="ValueError")) == []


def test_a_count_for_a_screen_ends_at_its_limit_unless_a_rollup_has_it(busy_hour, monkeypatch):
    monkeypatch.setattr(counting, "SHOWN_LIMIT", 10)
    early = Filter(since=T0)
    assert busy_hour.counts.for_screen(early) == Number(10, more=True)
    assert busy_hour.counts.letters(early) == 11
    assert busy_hour.counts.for_screen(Filter(task="charge")) == Number(11)
    monkeypatch.setattr(counting, "SHOWN_LIMIT", 11)
    assert busy_hour.counts.for_screen(early) == Number(11)
    assert busy_hour.counts.for_screen(replace(early, states=frozenset(State))) == Number(11)


@pytest.mark.parametrize("bound", ["since", "until"])
def test_a_moment_without_a_zone_is_refused(busy_hour, bound):
    wanted = Filter(**{bound: T0.replace(tzinfo=None)})
    for ask in (busy_hour.letters.find, busy_hour.counts.letters, busy_hour.counts.by_task):
        with pytest.raises(StoreError, match="needs a time zone"):
            ask(wanted)
