"""A count between two moments is what a listing shows, whichever hours these fall into."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.factories import T0, attempt, letter, parking
from support.stores import redriving

from celery_dlq.model.states import Reason, State
from celery_dlq.store.base import Filter
from celery_dlq.store.letters import counting

#: Within an hour, at its edges, and next to them.
MOMENTS = [
    T0 + timedelta(minutes=minutes, microseconds=offset)
    for minutes in (0, 20, 60, 75, 120, 180, 200)
    for offset in (-1, 0, 1)
]

IDS = [f"{number:03}" for number in range(120)]
NEVER = T0 + timedelta(days=9)
STATES = [
    (),
    (State.DEAD,),
    (State.DEAD, State.REDRIVEN),
    (State.DEAD, State.CLAIMED, State.PARKED),
    (State.RESOLVED, State.DEAD),
]


@pytest.fixture(scope="module")
def history(session_store, emptied):
    """Letters of some hours, some of them moved on, some under a fingerprint that several tasks have."""
    store, drawn = emptied(), random.Random(7)
    causes = [("a1", "shop.charge", "shop.Late"), ("a2", "shop.charge", "bank.Late")]
    causes += [("b1", "shop.ship", "shop.Late"), ("b1", "shop.charge", "shop.Declined")]
    for task_id in IDS:
        fingerprint, task, kind = drawn.choice(causes)
        died = attempt(failed_at=drawn.choice(MOMENTS))
        made = letter(task_id, died, fingerprint=fingerprint, task=task, exception_type=kind)
        store.letters.save([made.with_(reason=drawn.choice([Reason.TERMINAL, Reason.UNSTORED]))])
    claim(store, "held", IDS[:9])
    claim(store, "sent", IDS[10:19])
    redriving.confirm(store, "sent", IDS[10:19])
    redriving.end(store, "sent", IDS[10:19])
    fail_again(store, IDS[10:13])
    gone = Filter(ids=tuple(IDS[30:50]))
    assert store.closing.discard(gone, who="ann", why="", now=T0) == 20
    waiting = [parking("98", 60.0, exception_type="shop.Late"), parking("99", 60.0)]
    assert store.parked.park(waiting, now=T0) == 2
    yield store
    emptied()


def claim(store, token: str, ids) -> None:
    held = redriving.claim(
        store, Filter(ids=tuple(ids)), token=token, lease_until=NEVER, limit=9, now=T0
    )
    assert len(held.letters) == 9


def fail_again(store, ids) -> None:
    """Let letters fail again, so that their last failure is in another hour."""
    died = attempt(redrive=1, failed_at=MOMENTS[-1] + timedelta(minutes=1))
    for task_id in ids:
        known = store.letters.get(task_id)
        attempts = (*known.attempts, died)
        store.letters.save([known.with_(attempts=attempts, last_failed_at=died.failed_at)])


zones = st.integers(-24, 24).map(lambda half: timezone(timedelta(minutes=30 * half)))
moments = st.builds(lambda at, zone: at.astimezone(zone), st.sampled_from(MOMENTS), zones)
spans = st.one_of(
    st.builds(lambda at: (at, None), moments),
    st.builds(lambda at: (None, at), moments),
    st.tuples(moments, moments).filter(lambda span: span[0] < span[1]),
)


@pytest.mark.parametrize("late_limit", [counting.LATE_LIMIT, 0])
@given(
    span=spans,
    narrowed=st.sampled_from(
        [
            {},
            {"exception": "Late"},
            {"task": "charge"},
            {"group": "b1"},
            {"group": "a", "task": "charge", "exception": "bank.Late"},
        ]
    ),
    states=st.sampled_from(STATES).map(frozenset),
    without=st.sampled_from([(), (Reason.MALFORMED,), (Reason.UNSTORED,)]).map(frozenset),
)
@settings(max_examples=80, deadline=None)
def test_a_count_between_two_moments_is_what_a_listing_shows(
    history, late_limit, span, narrowed, states, without
):
    since, until = span
    wanted = Filter(since=since, until=until, states=states, without_reasons=without, **narrowed)
    listed = Counter(one.task for one in history.letters.find(wanted, limit=200).letters)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "LATE_LIMIT", late_limit)
        assert history.counts.by_task(wanted) == listed
        assert history.counts.letters(wanted) == listed.total()
