from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import pytest
from support.factories import T0, envelope, letter, parking, unsent
from support.stores.redriving import claim, end
from support.stores.rollup_checks import assert_counts_hold

from celery_dlq.model.headers import RELEASE_HEADER, doubtful_parking
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import Reason, State
from celery_dlq.store.base import DOUBT_S, Filter, Lease, UnsentAt
from celery_dlq.store.letters import acts
from celery_dlq.store.rows import rows

PARKED = Filter(states=frozenset({State.PARKED}))


def park(store, *letters: DeadLetter) -> int:
    return store.parked.park(letters, now=datetime.now(timezone.utc))


def lease(store, holder: str = "one", seconds: float = 60.0) -> Lease:
    held = store.leases.take("upkeep", holder=holder, seconds=seconds)
    assert held is not None
    return held


def take(store, held: Lease | None = None, hold_s: float = 60.0, limit: int = 10):
    return store.parked.take_due(held or lease(store), "here", limit=limit, hold_s=hold_s)


def ids(releases) -> list[str]:
    return [item.letter.task_id for item in releases]


def waiting(store) -> list[str]:
    return sorted(item.task_id for item in store.letters.find(PARKED).letters)


@pytest.fixture(autouse=True)
def _counts_hold_in_the_end(store):
    yield
    states = store.monitoring.stats(T0).by_state
    assert states[State.PARKED] == store.counts.letters(PARKED)
    park_nothing = store.closing.discard(PARKED, who="test", why="over", now=T0)
    assert park_nothing >= 0
    if not store.counts.letters(PARKED):
        assert_counts_hold(store)


def test_a_parked_retry_keeps_its_message_and_history(store):
    sent = envelope("a", body=b"\x00\xff", headers={"id": "a", "retries": 3, "x-own": 1})
    given = parking("a", 90, envelope=sent, args=["\x00", "\ud800"])

    assert park(store, given) == 1

    kept = store.letters.get("a")
    assert kept.state is State.PARKED
    assert kept.envelope == sent
    assert kept.attempts == given.attempts
    assert abs(kept.due_at - given.due_at) < timedelta(seconds=5)


def test_a_parked_retry_is_not_an_open_letter(store):
    park(store, parking("a", 90))

    stats = store.monitoring.stats(T0)

    assert stats.depth == 0
    assert stats.by_state[State.PARKED] == 1
    assert not store.groups.find(Filter(), now=T0)
    assert store.counts.letters(Filter()) == 0
    assert store.letters.find(Filter()).letters == ()


def test_parking_twice_is_parking_once_also_after_the_release(store):
    given = parking("a", -1)
    assert park(store, given, given) == 1
    assert park(store, given) == 0
    store.parked.confirm(take(store))

    assert park(store, given) == 0
    assert take(store) == ()


def test_due_retries_are_taken_most_overdue_first_and_the_rest_waits(store):
    park(store, parking("a", -5), parking("b", -9), parking("c", 90), parking("d", -1))

    assert ids(take(store, limit=2)) == ["b", "a"]
    assert ids(take(store)) == ["d"]
    assert ids(take(store)) == []
    assert waiting(store) == ["a", "b", "c", "d"], "none of them is confirmed"


def test_large_messages_are_taken_few_at_a_time(store, monkeypatch):
    monkeypatch.setattr("celery_dlq.store.letters.parked.TAKEN_BYTES", 50_000)
    sizes = {"a": 20_000, "b": 20_000, "c": 20_000, "d": 90_000}
    park(
        store,
        *(
            parking(name, -9 + number, envelope=envelope(name, body=b"x" * size))
            for number, (name, size) in enumerate(sizes.items())
        ),
    )

    assert [ids(take(store)) for _ in range(4)] == [["a", "b"], ["c"], ["d"], []]


def test_a_confirmed_release_waits_no_longer(store):
    park(store, parking("a", -1))

    store.parked.confirm(take(store, hold_s=0))

    assert waiting(store) == []
    assert store.letters.get("a") is None
    assert take(store) == ()


def test_a_release_that_was_killed_is_repeated_as_another_copy(store):
    park(store, parking("a", -1))

    first, second = take(store, hold_s=0), take(store, hold_s=0)

    assert [item.copy for item in (*first, *second)] == [1, 2]
    store.parked.confirm(first)
    assert waiting(store) == ["a"], "the copy that is being sent now decides"
    store.parked.confirm(second)
    assert waiting(store) == []


def test_a_retry_that_could_not_be_sent_is_tried_later(store):
    park(store, parking("a", -1))

    store.parked.put_off(take(store), delay_s=60)
    assert take(store) == ()
    assert 50 < store.parked.next_due("here") <= 60

    store.parked.make_due(Filter(), place="here", who="someone", now=T0)
    [again] = take(store)
    assert again.copy == 1, "no message has this number"


def test_a_retry_that_could_not_be_sent_can_be_discarded(store):
    park(store, parking("a", -1))
    for _ in range(2):
        store.parked.put_off(take(store), delay_s=-1)

    assert store.closing.discard(PARKED, who="someone", why="no such queue", now=T0) == 1
    assert (waiting(store), store.letters.get("a").state) == ([], State.DISCARDED)


def test_a_retry_that_may_have_been_sent_cannot_be_discarded(store):
    park(store, parking("a", -1))
    take(store, hold_s=0)  # its worker was killed
    store.parked.put_off(take(store), delay_s=60)

    assert store.closing.discard(PARKED, who="someone", why="", now=T0) == 0
    assert waiting(store) == ["a"]


def test_the_first_of_two_copies_to_come_runs_and_may_be_delivered_again(store):
    park(store, parking("a", -1))
    take(store, hold_s=0)
    take(store, hold_s=0)

    assert store.parked.accept([("here.a", 2)])[0]
    assert not store.parked.accept([("here.a", 1)])[0]
    assert store.parked.accept([("here.a", 2)])[0]


def test_a_copy_that_runs_before_it_is_confirmed_is_not_sent_again(store):
    park(store, parking("a", -1))
    taken = take(store, hold_s=0)

    assert store.parked.accept([("here.a", 1)])[0]

    assert take(store) == ()
    store.parked.confirm(taken)
    assert not store.parked.accept([("here.a", 2)])[0]


def test_each_release_of_a_batch_has_its_own_answer(store):
    park(store, parking("a", -1), parking("b", -1))
    take(store, hold_s=0)
    assert store.parked.accept([("here.b", 1)]) == [True]
    asked = [("here.a", 2), ("here.b", 2), ("here.a", 1), ("here.c", 1), ("here.a", 2)]
    assert store.parked.accept(asked) == [True, False, False, True, True]
    assert store.parked.accept([]) == []


def test_a_release_that_is_no_longer_known_runs(store):
    park(store, parking("a", -1))
    store.parked.confirm(take(store))
    assert store.parked.prune(older_than_s=3600) == 0

    assert store.parked.prune(older_than_s=-1) == 1
    assert store.parked.accept([("here.a", 1)])[0]


@pytest.mark.parametrize("exact", [True, False])
def test_a_message_that_came_back_takes_its_parked_copy_back(store, exact):
    park(store, parking("a1", -1), parking("b", -1))

    assert store.parked.take_back("here.a", exact=exact)

    assert waiting(store) == ["b"]
    assert ids(take(store)) == ["b"]
    assert store.parked.take_back("here.a", exact=exact), "however often it comes back"
    assert store.parked.accept([("here.a1", 1)]) == [False]


@pytest.mark.parametrize("exact", [True, False])
def test_a_parked_copy_that_was_sent_and_has_not_run_is_taken_back_too(store, exact):
    park(store, parking("a1", -1))
    store.parked.confirm(take(store))

    assert store.parked.take_back("here.a", exact=exact)
    assert store.parked.accept([("here.a1", 1)]) == [False]


@pytest.mark.parametrize("exact", [True, False])
def test_when_the_parked_copy_ran_the_message_runs_only_if_it_may_be_another(store, exact):
    park(store, parking("a1", -1))
    store.parked.accept([("here.a1", 1)])

    assert store.parked.take_back("here.a", exact=exact) is not exact


def test_a_message_that_was_never_parked_may_run(store):
    assert store.parked.take_back("here.a", exact=True)


def test_a_waiting_retry_is_never_pruned(store):
    park(store, parking("a", -1))

    assert store.parked.prune(older_than_s=-3600) == 0
    assert ids(take(store)) == ["a"]


def test_only_one_has_the_lease_until_it_expires_or_is_given_up(store):
    first = lease(store, "one")
    assert store.leases.take("upkeep", holder="two", seconds=60) is None
    assert lease(store, "one") == first, "prolonged"

    store.leases.give_up(first)

    second = lease(store, "two")
    assert second.token > first.token
    assert store.leases.take("upkeep", holder="one", seconds=60) is None


def test_a_holder_that_has_lost_the_lease_takes_nothing(store):
    park(store, parking("a", -1))
    lost = lease(store, "one", seconds=0)
    held = lease(store, "two")

    assert take(store, lost) == ()
    store.leases.give_up(lost)
    assert ids(take(store, held)) == ["a"]


def test_an_act_is_also_on_retries_of_a_worker_whose_clock_is_ahead(store):
    late = T0 + timedelta(days=1)
    park(store, parking("a", 90, last_failed_at=late))
    assert store.until_now(PARKED, now=T0) > late
    assert store.until_now(Filter(), now=T0) == T0
    by_value = Filter(states=PARKED.states, values=("acme",))
    assert store.until_now(by_value, now=T0) == T0, "they cannot be found by values"


@pytest.mark.on_servers
def test_many_workers_at_once_take_each_retry_once(store):
    park(store, *(parking(f"t{number}", -number) for number in range(60)))

    def work(number: int) -> list[str]:
        held = store.leases.take("upkeep", holder=f"w{number}", seconds=60)
        return ids(take(store, held, limit=15)) if held else []

    with ThreadPoolExecutor(8) as pool:
        taken = [name for names in pool.map(work, range(24)) for name in names]

    held = store.leases.take("upkeep", holder="w0", seconds=60)
    assert len(taken) == len(set(taken)) > 0
    assert held is None or not set(ids(take(store, held, limit=60))) & set(taken)


def test_the_clock_of_a_worker_does_not_matter(store):
    wrong = datetime.now(timezone.utc) + timedelta(hours=5)
    given = parking("a", 0, due_at=wrong + timedelta(seconds=90))

    store.parked.park([given], now=wrong)

    assert 60 < store.parked.next_due("here") <= 90


def test_next_due(store):
    assert store.parked.next_due("here") is None
    park(store, parking("a", 500), parking("b", 50))
    assert 40 < store.parked.next_due("here") <= 50


def test_lists_and_counts_narrow_parked_retries_like_letters(store):
    other = {"task": "shop.mail", "exception_type": "kombu.exceptions.OperationalError"}
    park(store, parking("a", 90), parking("b", 90, **other, message="50% of it"))
    store.letters.save([letter("dead")])

    def found(**narrow) -> list[str]:
        wanted = Filter(states=frozenset({State.PARKED}), **narrow)
        assert store.counts.letters(wanted) == len(store.letters.find(wanted).letters)
        return [item.task_id for item in store.letters.find(wanted).letters]

    assert sorted(found()) == ["a", "b"]
    assert found(task="mail") == ["b"]
    assert found(exception="OperationalError") == ["b"]
    assert found(search="50% OF") == ["b"]
    assert found(ids=("a",)) == ["a"]
    assert found(reason=Reason.EXHAUSTED) == []
    assert store.counts.by_task(PARKED) == {"shop.charge": 1, "shop.mail": 1}
    everything = Filter(states=frozenset(State))
    assert store.counts.letters(everything) == 3


def test_pages_go_through_letters_and_parked_retries_of_the_same_time(store):
    names = {*"abcde"}
    park(store, *(parking(name, 90) for name in "ace"))
    store.letters.save([letter(name) for name in "bd"])

    seen, after = list[str](), None
    while True:
        page = store.letters.find(Filter(states=frozenset(State)), limit=2, after=after)
        seen += [item.task_id for item in page.letters]
        after = page.next
        if after is None:
            break

    assert sorted(seen) == sorted(names)
    assert all(not item.attempts and not item.envelope.body for item in page.letters)


def test_a_beginning_of_an_id_finds_both(store):
    park(store, parking("abc", 90))
    store.letters.save([letter("abd")])

    assert store.letters.match("ab") == ["abc", "abd"]
    assert store.letters.match("ab", limit=1) == ["abc"]


def test_a_letter_whose_redriven_message_waits_says_until_when(store):
    store.letters.save([letter("a")])
    park(store, parking("a", 90))

    assert store.letters.get("a").state is State.DEAD
    assert store.letters.get("a").due_at is not None


def test_made_due_it_is_released_now_and_that_is_audited(store):
    park(store, parking("a", 9_000), parking("b", 9_000, task="shop.mail"))

    assert store.parked.make_due(Filter(task="mail"), place="here", who="someone", now=T0) == 1

    assert ids(take(store)) == ["b"]
    assert store.parked.make_due(Filter(task="mail"), place="here", who="someone", now=T0) == 0


def test_discarded_it_is_a_closed_letter_with_its_message(store):
    park(store, parking("a", 90), parking("b", 90))
    wanted = Filter(states=frozenset({State.PARKED}), ids=("a",))

    assert store.closing.discard(wanted, who="someone", why="not needed", now=T0) == 1

    kept = store.letters.get("a")
    assert (kept.state, kept.closed_by, kept.closed_reason) == (
        State.DISCARDED, "someone", "not needed",
    )  # fmt: skip
    assert kept.envelope.body
    assert waiting(store) == ["b"]
    assert store.closing.undiscard(Filter(ids=("a",)), who="someone", now=T0) == 1
    assert store.letters.get("a").state is State.DEAD


def test_a_message_that_never_ran_can_be_discarded_and_opened_again(store):
    """A breaker has parked it."""
    park(store, parking("a", 90, attempts=()))
    assert store.letters.get("a").attempts == ()
    wanted = Filter(ids=("a",), states=frozenset({State.PARKED}))
    assert store.closing.discard(wanted, who="someone", why="not needed", now=T0) == 1

    assert store.closing.undiscard(Filter(ids=("a",)), who="someone", now=T0) == 1
    opened = store.letters.get("a")
    assert (opened.state, opened.attempts, opened.attempt_count) == (State.DEAD, (), 0)


def test_a_redriven_message_that_never_ran_can_be_discarded(store):
    """A breaker has parked it, so no attempt names its redrive."""
    store.letters.save([letter("a")])
    until = T0 + timedelta(days=9_000)
    claim(store, Filter(), token="op", lease_until=until, limit=1, now=T0)
    end(store, "op", ["a"])
    late = T0 + timedelta(days=1)
    park(store, parking("a", 90, attempts=(), redrive_count=1, last_failed_at=late))

    assert store.closing.discard(PARKED, who="someone", why="not needed", now=T0) == 1

    assert store.letters.get("a").state is State.DISCARDED
    [act] = store.audit.find(act="discard").rows
    assert (act.count, act.why) == (1, "not needed")


def test_discarding_many_is_one_act(store, monkeypatch):
    monkeypatch.setattr(acts, "PARKED_CHUNK", 2)
    park(store, *(parking(f"{number}", 90) for number in range(5)))

    assert store.closing.discard(PARKED, who="someone", why="", now=T0) == 5

    [act] = store.audit.find(act="discard").rows
    assert (act.count, act.detail) == (5, {"filter": PARKED.to_dict()})


def test_discarding_leaves_retries_alone_that_are_being_sent(store):
    park(store, parking("a", -1))
    take(store)

    assert store.closing.discard(PARKED, who="someone", why="late", now=T0) == 0
    assert waiting(store) == ["a"]


def test_discarding_a_namesake_leaves_the_other_task_alone(store):
    store.letters.save([letter("a", task="other.task")])
    park(store, parking("a", 90))

    assert store.closing.discard(PARKED, who="someone", why="", now=T0) == 1

    assert store.letters.get("a").state is State.DEAD
    assert store.counts.letters(Filter(states=frozenset({State.DISCARDED}))) == 1


def test_each_broker_has_its_own_until_a_person_moves_them(store):
    park(store, parking("a", -1, place="there"), parking("b", -500, place="there"))
    assert store.parked.next_due("here") is None
    assert take(store) == ()
    assert store.parked.overdue() == 1

    assert store.parked.make_due(Filter(), place="here", who="someone", now=T0) == 2

    assert sorted(ids(take(store))) == ["a", "b"]
    assert store.parked.overdue() == 0


def doubtful(task_id: str, name: str) -> DeadLetter:
    """A letter of a message that its sender may have sent as the first copy."""
    named = doubtful_parking("here", name)
    sent = envelope(task_id, headers={"id": task_id, RELEASE_HEADER: f"{named}/1"})
    return parking(task_id, -1, parking=named, reason=Reason.UNSENT, envelope=sent)


def test_a_message_in_doubt_waits_until_workers_have_said_what_they_took(store):
    """Also if its letter has come late, because it was in a spool."""
    park(store, doubtful("a", "m1"))
    assert DOUBT_S - 5 < store.parked.next_due("here") <= DOUBT_S


def test_a_message_in_doubt_counts_as_the_first_copy(store, monkeypatch):
    monkeypatch.setattr(rows, "DOUBT_S", -60.0)
    park(store, doubtful("a", "m1"), parking("b", -1))
    assert store.parked.in_doubt("here") == {"m1"}
    assert store.parked.in_doubt("elsewhere") == frozenset()

    assert sorted((one.letter.task_id, one.copy) for one in take(store)) == [("a", 2), ("b", 1)]


def test_messages_that_were_not_sent_are_counted_by_their_broker(store):
    late = T0 + timedelta(minutes=5)
    others = unsent("d", place="there", last_failed_at=late)
    park(store, unsent("a", last_failed_at=late), unsent("b"), parking("c", -500), others)
    found = store.monitoring.measures()
    assert sorted(found.unsent, key=lambda one: one.place) == [
        UnsentAt(place="here", messages=2, since=T0), UnsentAt(place="there", messages=1, since=late),
    ]  # fmt: skip
    assert store.parked.unsent() == found.unsent
    assert (found.parked, found.overdue) == (4, 1)

    store.parked.accept([("here.b", 1)])
    assert {(one.place, one.messages) for one in store.parked.unsent()} == {
        ("here", 1),
        ("there", 1),
    }


def test_the_number_of_messages_that_were_not_sent_never_falls(store):
    def kept():
        return sum(
            one.arrived for one in store.monitoring.measures().cells if one.reason is Reason.UNSENT
        )

    park(store, unsent("a"), unsent("b"), parking("c", -1))
    park(store, unsent("a"))
    assert kept() == 2
    of_one = Filter(ids=("a",), states=frozenset({State.PARKED}))
    assert store.closing.discard(of_one, who="ann", why="x", now=T0) == 1
    store.parked.accept([("here.b", 1)])
    assert kept() == 2
    assert store.monitoring.measures().unsent == ()


def test_of_a_message_in_doubt_one_copy_runs(store, monkeypatch):
    monkeypatch.setattr(rows, "DOUBT_S", -60.0)
    park(store, doubtful("a", "m1"), doubtful("b", "m2"))
    first = [(doubtful_parking("here", "m1"), 1)]
    assert store.parked.accept(first) == [True]
    assert ids(take(store)) == ["b"]

    second = [(doubtful_parking("here", "m2"), copy) for copy in (2, 1)]
    assert store.parked.accept(second) == [True, False]
    # A worker that receives the first copy of "b" much later still asks.
    assert store.parked.in_doubt("here") == {"m2"}
