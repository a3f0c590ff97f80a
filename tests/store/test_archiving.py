"""Letters leave the store as lines and come back as they were, on each database."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from support.factories import T0, attempt, letter, operation, parking
from support.stores import redriving
from support.stores.history import edit

from celery_dlq.archive.segment import letter_key
from celery_dlq.errors import LeaseLost
from celery_dlq.model.states import State
from celery_dlq.store.base import Facts, Filter, OngoingAct, SegmentState
from celery_dlq.store.sql import SQLStore

pytestmark = pytest.mark.usefixtures("counts_hold_in_the_end")

NOW = T0 + timedelta(days=1)
FACTS = Facts(letters=3, size=100, sha256="f" * 64, first_failed_at=T0, last_failed_at=NOW)
ACT = OngoingAct(who="retention", act="archive", detail={"keep": []}, at=NOW)


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def discard(store, *ids: str) -> None:
    store.closing.discard(Filter(ids=ids), who="ann", why="obsolete", now=minutes(10))


def redrive(store, *ids: str) -> None:
    """A redrive after which these letters fail again."""
    store.operations.create(operation("one", wanted=Filter(ids=ids)))
    redriving.claim(store, Filter(ids=ids), token="one", lease_until=minutes(60), limit=9, now=T0)
    redriving.end(store, "one", ids)
    store.letters.save(
        [letter(name, attempt(redrive=1, minutes=8), message="still bad") for name in ids]
    )


def lease(store, holder: str = "one"):
    return store.leases.take("retention", holder=holder, seconds=60)


def read(store, *ids: str) -> list[dict]:
    """The lines of letters, as a file would have them."""
    return [json.loads(json.dumps(line)) for line in store.archiving.read(ids)]


def take_out(store, *ids: str) -> list[dict]:
    """The lines of letters, which are deleted."""
    lines = read(store, *ids)
    keys = [letter_key(line) for line in lines]
    assert store.archiving.commit(segment(store), keys, lease(store), ACT)[0] == len(ids)
    return lines


def segment(store):
    """A segment whose file is in the archive, and that does not count yet."""
    return store.archiving.begin(FACTS, lease(store))


def restore(store, lines, *, reopen: bool = False, origin: str = ""):
    return store.archiving.restore(lines, who="ann", reopen=reopen, origin=origin, now=NOW)


def own_segment(store) -> str:
    made = segment(store)
    store.archiving.commit(made, [], lease(store), ACT)
    return made.id


@pytest.fixture
def letters(store):
    store.letters.save(
        [letter(name, attempt(minutes=at), tags=("a", "b")) for at, name in enumerate("abc")]
    )
    return store


def test_a_letter_comes_back_as_it_was(letters):
    edit(letters, "a", at=minutes(5), body=b"[[],{},{}]\xff")
    redrive(letters, "a")
    discard(letters, "a", "b")
    before = [letters.letters.get(name) for name in "ab"]
    changes, sendings = letters.edits.of_letter("a"), letters.sendings.of_letter("a")
    origin = own_segment(letters)
    lines = take_out(letters, "a", "b")
    assert letters.letters.get("a") is None
    result = restore(letters, lines, origin=origin)
    assert (result.restored, result.living) == (("a", "b"), ())
    for was in before:
        said = f"obsolete (closed 2026-11-21 12:10 UTC, restored from segment {origin})"
        back = was.with_(closed_at=NOW, closed_reason=said)
        assert letters.letters.get(was.task_id) == back
    assert letters.edits.of_letter("a") == changes
    assert letters.sendings.of_letter("a") == sendings
    assert "still bad" in sendings[0].why


def test_a_restored_letter_can_be_reopened_and_redriven(letters):
    discard(letters, "a")
    lines = take_out(letters, "a")
    restore(letters, lines, reopen=True, origin=own_segment(letters))
    found = letters.letters.get("a")
    assert (found.state, found.closed_at, found.closed_reason) == (State.DEAD, None, "")
    claimed = redriving.claim(
        letters, Filter(ids=("a",)), token="t", lease_until=minutes(60), limit=9, now=T0
    )
    assert [one.envelope.body for one in claimed.letters] == [found.envelope.body]


def test_letters_that_leave_are_audited(letters):
    discard(letters, "a", "b")
    take_out(letters, "a", "b")
    (act,) = letters.audit.find(act="archive").rows
    assert (act.who, act.count, act.detail) == ("retention", 2, {"keep": []})


def test_a_letter_that_lives_stays_as_it_is(letters):
    discard(letters, "a")
    lines = read(letters, "a")
    letters.closing.undiscard(Filter(ids=("a",)), who="bob", now=minutes(12))
    result = restore(letters, lines)
    assert (result.restored, result.living) == ((), ("a",))
    assert letters.letters.get("a").state is State.DEAD
    assert letters.audit.find(act="restore").rows == ()


def test_a_letter_whose_next_run_is_parked_does_not_come_back(letters):
    discard(letters, "a")
    lines = take_out(letters, "a")
    letters.parked.park([parking("a", 90)], now=NOW)
    result = restore(letters, lines, reopen=True, origin=own_segment(letters))
    assert (result.restored, result.living) == ((), ("a",))
    assert letters.letters.get("a").state is State.PARKED
    parked = Filter(states=frozenset({State.PARKED}))
    assert letters.closing.discard(parked, who="ann", why="over", now=NOW) == 1


def test_a_letter_that_was_restored_since_it_was_read_is_not_deleted(letters):
    discard(letters, "a")
    (line,) = take_out(letters, "a")
    restore(letters, [line], origin=own_segment(letters))
    made = segment(letters)
    assert letters.archiving.commit(made, [letter_key(line)], lease(letters), ACT) == (0, ACT)
    assert letters.letters.get("a") is not None


def test_a_second_restore_changes_nothing(letters):
    discard(letters, "a")
    lines = take_out(letters, "a")
    origin = own_segment(letters)
    restore(letters, lines, origin=origin)
    found = letters.letters.get("a")
    assert restore(letters, lines, origin=origin).living == ("a",)
    assert letters.letters.get("a") == found


def test_a_letter_that_is_restored_twice_counts_its_redrives_on(letters):
    discard(letters, "a")
    lines, origin = take_out(letters, "a"), own_segment(letters)
    restore(letters, lines, reopen=True, origin=origin)
    redrive(letters, "a")
    discard(letters, "a")
    assert letters.deleting.delete(Filter(), who="ann", why="wrong", now=minutes(20)) == 1
    restore(letters, lines, reopen=True, origin=origin)
    assert letters.letters.get("a").redrive_count == 1


def test_a_restore_is_audited_with_the_segment(letters):
    discard(letters, "a", "b")
    origin = own_segment(letters)
    restore(letters, take_out(letters, "a", "b"), reopen=True, origin=origin)
    (act,) = letters.audit.find(act="restore").rows
    assert (act.who, act.count) == ("ann", 2)
    assert act.detail == {"segment": origin, "reopened": True}


@pytest.mark.clear("it makes a store without keys, or lines in clear")
def test_letters_come_back_into_another_store(letters, tmp_path):
    edit(letters, "a", at=minutes(5), body=b"[[],{},{}]\xff")
    discard(letters, "a")
    before = letters.letters.get("a")
    lines = take_out(letters, "a")
    other = SQLStore(f"sqlite:///{tmp_path / 'other.sqlite3'}")
    other.check_schema()
    restore(other, lines, reopen=True, origin="of another store")
    found = other.letters.get("a")
    closing = {"state": State.DEAD, "closed_at": None, "closed_by": "", "closed_reason": ""}
    assert found == before.with_(**closing)
    (group,) = other.groups.find(Filter(), now=NOW)
    assert (group.open_count, group.total_count) == (1, 1)
    other.close()


def test_a_line_of_an_older_schema_gets_defaults(letters):
    discard(letters, "a")
    (line,) = take_out(letters, "a")
    del line["letter"]["route"], line["handlings"]
    line["letter"]["later"] = "unknown to this release"
    restore(letters, [line], origin=own_segment(letters))
    assert letters.letters.get("a").route == ""


def test_open_and_unknown_letters_have_no_lines(letters):
    discard(letters, "b")
    lines = read(letters, "c", "b", "x", "a")
    assert [line["letter"]["task_id"] for line in lines] == ["b"]


def test_lines_are_in_the_order_of_the_ids_however_large_the_bodies_are(store):
    bodies = {name: bytes([ord(name)]) * 6_000_000 for name in "abcd"} | {"e": b"small"}
    for name, body in bodies.items():
        made = letter(name)
        store.letters.save([made.with_(envelope=made.envelope.with_body(body))])
    discard(store, *bodies)
    lines = store.archiving.read(("d", "x", "a", "e", "c", "b"))
    assert [line["letter"]["task_id"] for line in lines] == ["d", "a", "e", "c", "b"]


def test_a_segment_counts_once_it_is_committed(store):
    mine = lease(store)
    made = store.archiving.begin(FACTS, mine)
    assert store.archiving.segments() == [made]
    assert (made.counts, store.archiving.newest(), store.archiving.totals().segments) == (
        False,
        "",
        0,
    )
    assert store.archiving.leftovers(mine) == [made.id]
    store.archiving.commit(made, [], mine, ACT)
    (own,) = store.archiving.segments()
    assert own == replace(made, state=SegmentState.OWN)
    assert store.archiving.leftovers(mine) == []
    totals = store.archiving.totals()
    assert (totals.segments, totals.letters, totals.size) == (1, 3, 100)
    assert totals.last_at == made.archived_at
    store.archiving.drop(made.id)
    assert store.archiving.newest() == made.id


def test_a_segment_that_replaces_another_one_has_its_place_and_its_state(store):
    mine = lease(store)
    store.archiving.adopt("20260101T000000000000-00000001", FACTS, T0)
    (before,) = store.archiving.segments()
    own_segment(store)
    after = store.archiving.begin(FACTS, mine, before)
    store.archiving.replace(before, after, mine)
    assert store.archiving.leftovers(mine) == [before.id]
    store.archiving.drop(before.id)
    states = [one.state.value for one in store.archiving.segments()]
    assert states == ["adopted", "own"]
    (after, last) = store.archiving.segments()
    store.archiving.replace(last, None, mine)
    assert store.archiving.newest() == after.id


def test_a_clock_that_was_set_back_does_not_change_the_order_of_segments(store):
    future = NOW.replace(year=2126)
    store.archiving.adopt("21261122T120000000000-00000001", FACTS, future)
    made = segment(store)
    assert made.archived_at > future
    assert store.archiving.segments()[-1] == made


def test_a_process_that_has_lost_the_lease_changes_nothing(letters):
    discard(letters, "a")
    (line,) = read(letters, "a")
    mine = lease(letters)
    own_segment(letters)
    (own,) = letters.archiving.segments()
    made = letters.archiving.begin(FACTS, mine)
    letters.leases.give_up(mine)
    lease(letters, "two")
    for act in (
        lambda: letters.archiving.begin(FACTS, mine),
        lambda: letters.archiving.commit(made, [letter_key(line)], mine, ACT),
        lambda: letters.archiving.replace(own, made, mine),
        lambda: letters.archiving.leftovers(mine),
    ):
        with pytest.raises(LeaseLost):
            act()
    assert letters.letters.get("a") is not None
    assert letters.archiving.segments() == [own, made]


def test_a_leftover_that_another_process_has_dropped_cannot_be_committed(letters):
    discard(letters, "a")
    (line,) = read(letters, "a")
    made = segment(letters)
    letters.archiving.drop(made.id)
    with pytest.raises(LeaseLost, match=f"Another process has ended segment {made.id}"):
        letters.archiving.commit(made, [letter_key(line)], lease(letters), ACT)
    assert letters.letters.get("a") is not None


@pytest.mark.clear("it makes a store without keys, or lines in clear")
def test_a_letter_comes_back_without_secrets_in_what_is_searched(store):
    store.letters.save([letter("a", attempt(), kwargs={"n": 1})])
    store.closing.discard(Filter(ids=("a",)), who="ann", why="", now=T0)
    [line] = store.archiving.read(["a"])
    line["letter"]["message"] = "no login with password=hunter2"
    line["content"]["kwargs"] = '{"n":1,"token":"hunter2"}'
    store.deleting.delete(Filter(ids=("a",)), who="ann", why="", now=T0)
    store.archiving.restore([line], who="ann", reopen=True, origin="x-1", now=T0)
    back = store.letters.get("a")
    assert (back.message, back.kwargs) == (
        "no login with password=[redacted]", {"n": 1, "token": "[redacted]"},
    )  # fmt: skip
