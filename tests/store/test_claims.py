from __future__ import annotations

from datetime import timedelta

import pytest
from factories import T0, attempt, letter
from recount import assert_counts_hold

from celery_dlq.letter import Outcome
from celery_dlq.states import State
from celery_dlq.store.base import Filter


def minutes(number: float):
    return T0 + timedelta(minutes=number)


EVERYTHING = Filter()


def named(*states: State) -> Filter:
    return Filter(states=frozenset(states))


def claim(store, wanted: Filter = EVERYTHING, token: str = "t", limit: int = 10, now: float = 30):
    return store.claim(
        wanted, token=token, lease_until=minutes(now + 2), limit=limit, now=minutes(now)
    )


def ids(claim) -> list[str]:
    return [item.task_id for item in claim.letters]


def states(store) -> dict[str, str]:
    page = store.find(Filter(states=frozenset(State)), limit=100)
    return {item.task_id: item.state.value for item in page.letters}


@pytest.fixture(autouse=True)
def _counts_hold_in_the_end(store):
    yield
    assert_counts_hold(store)


@pytest.fixture
def three(store):
    """Letters c, a, b, from the oldest failure to the newest."""
    for at, task_id in enumerate("cab"):
        store.save([letter(task_id, attempt(minutes=at))])
    return store


def test_the_oldest_failures_are_taken_first(three):
    assert ids(claim(three, limit=2)) == ["c", "a"]
    assert ids(claim(three, token="u")) == ["b"]
    assert ids(claim(three, token="v")) == []


def test_a_claimed_letter_has_what_a_redrive_sends_and_nothing_to_look_at(store):
    whole = letter("0d3f", tags=("x",))
    store.save([whole])
    (found,) = claim(store).letters
    assert found == whole.with_(
        state=State.CLAIMED, claim_token="t", lease_expires_at=minutes(32), attempt_count=1,
        attempts=(), traceback="", args=None, kwargs=None, tags=(),
    )  # fmt: skip
    stored = store.get("0d3f")
    assert (stored.state, stored.claim_token) == (State.CLAIMED, "t")
    assert stored.lease_expires_at == minutes(32)


def test_only_what_matches_is_taken(three):
    assert ids(claim(three, Filter(ids=("a", "zz")))) == ["a"]
    assert ids(claim(three, Filter(task="refund"))) == []
    assert ids(claim(three, Filter(until=minutes(1)))) == ["c"]


def test_confirmed_letters_are_redriven_and_counted(three):
    claim(three)
    assert three.confirm("t", ["a", "c"]) == 2
    assert states(three) == {"a": "redriven", "b": "claimed", "c": "redriven"}
    found = three.get("a")
    assert (found.redrive_count, found.claim_token, found.lease_expires_at) == (1, None, None)


def test_a_confirmation_may_be_repeated(three):
    claim(three)
    assert three.confirm("t", ["a"]) == 1
    assert three.confirm("t", ["a"]) == 0
    assert three.get("a").redrive_count == 1


def test_released_letters_are_dead_and_not_counted(three):
    claim(three)
    assert three.release("t", ["a", "b"]) == 2
    assert states(three) == {"a": "dead", "b": "dead", "c": "claimed"}
    found = three.get("a")
    assert (found.redrive_count, found.claim_token, found.lease_expires_at) == (0, None, None)


def test_another_token_moves_nothing(three):
    claim(three)
    assert three.confirm("other", ["a"]) == 0
    assert three.release("other", ["a"]) == 0
    assert three.get("a").state is State.CLAIMED


def test_a_claim_whose_lease_has_ended_is_free_again(three):
    claim(three, limit=2)
    assert ids(claim(three, token="u", now=31)) == ["b"]
    assert ids(claim(three, token="v", now=32)) == ["c", "a"]
    assert three.confirm("t", ["a"]) == 0
    assert three.confirm("v", ["a"]) == 1


def test_expired_claims_come_before_letters_that_nobody_tried_yet(three):
    claim(three, Filter(ids=("b",)))
    assert ids(claim(three, token="u", limit=2, now=40)) == ["c", "b"]


def test_rescue_frees_expired_claims_only(three):
    claim(three, limit=1, now=30)
    claim(three, token="u", limit=1, now=31)
    assert three.rescue(minutes(32)) == 1
    assert states(three) == {"c": "dead", "a": "claimed", "b": "dead"}
    assert three.rescue(minutes(32)) == 0
    assert three.confirm("t", ["c"]) == 0


def test_a_rescued_letter_can_be_taken_again(three):
    claim(three)
    three.rescue(minutes(99))
    assert ids(claim(three, token="u")) == ["c", "a", "b"]
    assert three.get("a").claim_token == "u"


def test_redriven_letters_are_taken_only_when_they_are_named(three):
    claim(three)
    three.confirm("t", ["a", "b", "c"])
    assert ids(claim(three)) == []
    assert ids(claim(three, named(State.DEAD))) == []
    assert ids(claim(three, named(State.REDRIVEN), token="u", limit=2)) == ["c", "a"]
    assert three.confirm("u", ["a"]) == 1
    assert three.get("a").redrive_count == 2


@pytest.mark.parametrize(
    ("named_states", "taken"),
    [
        ({State.DEAD}, ["expired", "waiting"]),
        ({State.CLAIMED}, ["expired"]),
        ({State.REDRIVEN}, ["sent"]),
        ({State.DEAD, State.REDRIVEN}, ["expired", "sent", "waiting"]),
        ({State.RESOLVED, State.DISCARDED}, []),
        (set(), ["expired", "waiting"]),
    ],
)
def test_what_the_named_states_allow(store, named_states, taken):
    store.save([letter(name) for name in ("closed", "expired", "held", "ran", "sent", "waiting")])
    claim(store, Filter(ids=("sent",)), token="a")
    store.confirm("a", ["sent"])
    claim(store, Filter(ids=("expired",)), token="b", now=10)
    claim(store, Filter(ids=("held",)), token="c", now=30)
    store.discard(Filter(ids=("closed",)), who="ann", why="", now=minutes(1))
    ran = Outcome(task_id="ran", redrive=0, succeeded_at=minutes(1), worker="w")
    store.record_outcomes([ran])
    assert sorted(ids(claim(store, Filter(states=frozenset(named_states)), token="d"))) == taken


def test_many_letters_are_claimed_and_confirmed_by_the_batch(store):
    store.save([letter(f"{number:04}") for number in range(1100)])
    seen: list[str] = []
    while batch := ids(claim(store, limit=500, token=str(len(seen)))):
        assert store.confirm(str(len(seen)), batch) == len(batch)
        seen += batch
    assert sorted(seen) == [f"{number:04}" for number in range(1100)]


def test_a_letter_whose_id_is_too_long_is_confirmed_by_its_own_id(store):
    store.save([letter("x" * 400)])
    claim(store)
    assert store.confirm("t", ["x" * 400]) == 1
