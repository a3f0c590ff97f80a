"""The route of a letter: stored, filtered by, counted, and that of its newest failure."""

from __future__ import annotations

import pytest
from support.factories import T0, attempt, letter, parking
from support.stores import redriving

from celery_dlq.model.letter import Outcome
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter

PAYMENTS = Filter(route="payments")
ALL = frozenset(State)

pytestmark = pytest.mark.usefixtures("counts_hold_in_the_end")


@pytest.fixture
def three(store):
    """Letters of two routes, and one without a route."""
    store.letters.save(
        [
            letter("a", attempt(minutes=1), route="payments", tags=("money",)),
            letter("b", attempt(minutes=2), route="mail", fingerprint="b" * 16),
            letter("c", attempt(minutes=3), fingerprint="c" * 16),
        ]
    )
    return store


def found(store, wanted) -> list[str]:
    """The ids that match. There must be as many as the count says."""
    names = [item.task_id for item in store.letters.find(wanted, limit=100).letters]
    assert store.counts.letters(wanted) == len(names)
    return names


def again(store, task_id, **changes):
    """Redrive the letter; it fails again, and is routed again."""
    until = T0.replace(year=2027)
    redriving.claim(store, Filter(ids=(task_id,)), token="t", lease_until=until, limit=1, now=T0)
    redriving.confirm(store, "t", [task_id])
    return store.letters.save(
        [letter(task_id, attempt(), attempt(redrive=1, minutes=9), redrive_count=1, **changes)]
    )


def test_a_letter_keeps_its_route(three):
    kept = three.letters.get("a")
    assert (kept.route, kept.tags) == ("payments", ("money",))
    assert three.letters.get("c").route == ""
    assert [item.route for item in three.letters.find(Filter()).letters] == ["", "mail", "payments"]
    letters, _ = three.letters.read(["a"])
    assert letters[0].route == "payments"


def test_a_filter_chooses_by_route(three):
    assert found(three, PAYMENTS) == ["a"]
    assert found(three, Filter(route="mail", task="charge")) == ["b"]
    assert found(three, Filter(route="pay")) == []
    assert found(three, Filter(route="payments", states=ALL)) == ["a"]
    assert found(three, Filter(route="payments", since=T0)) == ["a"]


def test_open_letters_are_counted_by_route(three):
    assert three.monitoring.measures().routes == {"payments": 1, "mail": 1}
    three.closing.discard(PAYMENTS, who="ann", why="", now=T0)
    assert three.monitoring.measures().routes == {"mail": 1}
    assert found(three, PAYMENTS) == []
    assert found(three, Filter(route="payments", states=frozenset({State.DISCARDED}))) == ["a"]
    three.closing.undiscard(Filter(route="payments", states=ALL), who="ann", now=T0)
    assert three.monitoring.measures().routes == {"payments": 1, "mail": 1}
    three.letters.record_outcomes(
        [Outcome(task_id="a", redrive=1, succeeded_at=T0.replace(year=2027), worker="w")]
    )
    assert three.monitoring.measures().routes == {"mail": 1}


def test_counts_of_a_task_do_not_depend_on_routes(three):
    assert three.counts.letters(Filter(task="charge")) == 3
    cells = three.monitoring.measures().cells
    assert [(cell.task, cell.open, cell.arrived) for cell in cells] == [("shop.charge", 3, 3)]


def test_a_letter_that_fails_again_is_on_the_route_of_its_newest_failure(three):
    assert again(three, "a", route="mail", tags=("slow",)).arrived == 1
    kept = three.letters.get("a")
    assert (kept.route, kept.tags) == ("mail", ("slow",))
    assert found(three, PAYMENTS) == []
    assert found(three, Filter(route="mail")) == ["a", "b"]
    assert three.monitoring.measures().routes == {"mail": 2}


def test_a_letter_that_fails_again_on_no_route_has_none(three):
    again(three, "a")
    assert three.letters.get("a").route == ""
    assert three.monitoring.measures().routes == {"mail": 1}


def test_a_failure_that_is_out_of_date_does_not_move_a_letter(three):
    three.letters.save([letter("a", attempt(minutes=-5), route="mail")])
    assert three.letters.get("a").route == "payments"


def test_a_group_is_on_the_route_of_its_newest_failure(store):
    def group():
        return store.groups.get("9c1e0000deadbeef", now=T0).route

    store.letters.save([letter("a", attempt(minutes=1), route="payments")])
    assert group() == "payments"
    store.letters.save(
        [
            letter("b", attempt(minutes=5), route="mail"),
            letter("c", attempt(minutes=3), route="payments"),
        ]
    )
    assert group() == "mail"
    store.letters.save([letter("d", attempt(minutes=4), route="payments")])
    store.closing.discard(Filter(ids=("d",)), who="ann", why="", now=T0)
    assert group() == "mail"
    store.letters.save([letter("e", attempt(minutes=6))])
    assert group() == ""
    assert found(store, PAYMENTS) == ["c", "a"]


def test_groups_are_chosen_by_route(three):
    chosen = three.groups.find(PAYMENTS, now=T0)
    assert [(group.fingerprint, group.route) for group in chosen] == [
        ("9c1e0000deadbeef", "payments")
    ]
    assert len(three.groups.find(Filter(), now=T0)) == 3


def test_a_parked_retry_is_chosen_by_its_route(store):
    waiting = [parking("p", 60, route="payments"), parking("q", 60, fingerprint="q" * 16)]
    store.parked.park(waiting, now=T0)
    wanted = Filter(route="payments", states=frozenset({State.PARKED}))
    assert [item.task_id for item in store.letters.find(wanted).letters] == ["p"]
    assert store.counts.letters(wanted) == 1
    assert store.letters.get("p").route == "payments"
    assert store.closing.discard(wanted, who="ann", why="", now=T0) == 1
    assert store.letters.get("p").route == "payments"
    # The check of the counts knows no parked retries.
    store.closing.discard(Filter(states=frozenset({State.PARKED})), who="ann", why="", now=T0)


def test_a_redrive_claims_the_letters_of_a_route(three):
    held = redriving.claim(
        three, PAYMENTS, token="t", lease_until=T0.replace(year=2027), limit=10, now=T0
    )
    assert [item.task_id for item in held.letters] == ["a"]
