"""People decide about groups, and the next letters may change the decision."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import event
from support.factories import T0, attempt, letter
from support.stores import redriving

from celery_dlq.errors import UnknownGroup
from celery_dlq.model.group import (
    NOT_IGNORED,
    Annotate,
    Assign,
    GroupFilter,
    GroupStatus,
    Ignore,
    Mark,
    Reopen,
    Resolve,
)
from celery_dlq.model.letter import Explanation
from celery_dlq.model.states import State, Verdict
from celery_dlq.store.base import Filter

pytestmark = pytest.mark.usefixtures("counts_hold_in_the_end")

FINGERPRINT = "9c1e0000deadbeef"


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def failure(task_id: str, at: float = 0, redrive: int = 0, **changes):
    return letter(task_id, attempt(1, redrive, at), **changes)


def names(groups) -> tuple[str, ...]:
    return tuple(group.fingerprint for group in groups)


def save(store, *letters):
    """Fingerprints of the groups that were new, and of those that regressed."""
    saved = store.letters.save(letters)
    return names(saved.new_groups), names(saved.regressed_groups)


def triage(store, act, at: float = 10, fingerprint: str = FINGERPRINT, who: str = "ann"):
    return store.groups.triage(fingerprint, act, who=who, now=minutes(at))


def read(store, at: float = 20):
    return store.groups.get(FINGERPRINT, now=minutes(at))


def shown(store, at: float = 20, which: GroupFilter = NOT_IGNORED) -> tuple[str, ...]:
    return names(store.groups.find(Filter(), now=minutes(at), which=which))


@pytest.fixture
def failed(store):
    """A store with one letter."""
    store.letters.save([failure("a")])
    return store


class TestNew:
    def test_a_group_is_new_with_its_first_letters_and_never_again(self, store):
        assert save(store, failure("a"), failure("b", 1)) == ((FINGERPRINT,), ())
        assert save(store, failure("c", 2)) == ((), ())

    def test_the_same_letters_again_are_nothing_new(self, failed):
        assert save(failed, failure("a")) == ((), ())

    def test_each_of_several_is_reported(self, store):
        both = [failure("a"), failure("b", fingerprint="bb", task="shop.mail")]
        assert save(store, *both) == ((FINGERPRINT, "bb"), ())
        (saved,) = store.letters.save([failure("c", fingerprint="cc")]).new_groups
        assert (saved.fingerprint, saved.total_count, saved.open_count) == ("cc", 1, 1)

    def test_a_letter_that_moves_to_another_group_makes_it_new(self, failed):
        again = failure("a", 5, redrive=1, fingerprint="bb")
        held = redriving.claim(
            failed, Filter(), token="t", lease_until=minutes(60), limit=1, now=minutes(1)
        )
        redriving.confirm(failed, "t", [item.task_id for item in held.letters])
        assert save(failed, again) == (("bb",), ())


class TestResolved:
    def test_its_letters_wait_and_it_is_shown(self, failed):
        group = triage(failed, Resolve())
        assert (group.status, group.status_at, group.status_by) == (
            GroupStatus.RESOLVED, minutes(10), "ann",
        )  # fmt: skip
        assert failed.letters.get("a").state is State.DEAD
        assert shown(failed) == (FINGERPRINT,)
        failed.closing.discard(Filter(), who="ann", why="", now=minutes(11))
        assert shown(failed) == ()

    def test_the_next_failure_opens_it_once(self, failed):
        triage(failed, Resolve())
        assert save(failed, failure("b", 12), failure("c", 11)) == ((), (FINGERPRINT,))
        group = read(failed)
        assert (group.status, group.regressed_at) == (GroupStatus.OPEN, minutes(12))
        assert (group.status_at, group.status_by) == (None, "")
        assert group.marks(minutes(20)) == (Mark.REGRESSED,)
        assert save(failed, failure("d", 13)) == ((), ())

    def test_the_saved_group_is_as_it_is_then(self, failed):
        triage(failed, Resolve())
        (group,) = failed.letters.save([failure("b", 12)]).regressed_groups
        assert group == replace(read(failed), verdict=None, rule="")  # these are only looked up

    def test_a_failure_from_before_does_not_open_it(self, failed):
        triage(failed, Resolve(), at=10)
        assert save(failed, failure("spooled", 9)) == ((), ())
        assert read(failed).status is GroupStatus.RESOLVED

    def test_a_redriven_letter_that_fails_again_opens_it(self, failed):
        held = redriving.claim(
            failed, Filter(), token="t", lease_until=minutes(60), limit=1, now=minutes(1)
        )
        redriving.confirm(failed, "t", [item.task_id for item in held.letters])
        triage(failed, Resolve(), at=10)
        assert save(failed, failure("a", 11, redrive=1)) == ((), (FINGERPRINT,))

    def test_a_known_failure_opens_nothing(self, failed):
        late = failure("b", 12)
        failed.letters.save([late])
        triage(failed, Resolve(), at=11)
        assert save(failed, late) == ((), ())

    def test_reopening_discarded_letters_is_not_a_failure(self, failed):
        failed.closing.discard(Filter(), who="ann", why="", now=minutes(1))
        triage(failed, Resolve())
        failed.closing.undiscard(Filter(), who="ann", now=minutes(11))
        assert read(failed).status is GroupStatus.RESOLVED


class TestResolvedInARelease:
    @pytest.fixture
    def fixed(self, store):
        store.letters.save(
            [
                failure("a", 0, release="1.0"),
                failure("b", 1, release="1.1"),
                failure("c", 2, release=""),
            ]
        )
        store.closing.discard(Filter(ids=("b",)), who="ann", why="", now=minutes(5))
        group = triage(store, Resolve(release="1.2"))
        assert group.resolved_in == "1.2"
        return store

    @pytest.mark.parametrize("release", ["1.0", "1.1"])
    def test_releases_that_failed_before_do_not_count(self, fixed, release):
        assert save(fixed, failure("d", 20, release=release)) == ((), ())
        assert read(fixed).status is GroupStatus.RESOLVED

    @pytest.mark.parametrize("release", ["1.2", "1.3", ""])
    def test_failures_in_other_releases_count(self, fixed, release):
        assert save(fixed, failure("d", 20, release=release)) == ((), (FINGERPRINT,))

    def test_the_named_one_counts_though_it_failed_before(self, fixed):
        triage(fixed, Resolve(release="1.1"))
        assert save(fixed, failure("d", 20, release="1.1")) == ((), (FINGERPRINT,))


class TestIgnored:
    def test_it_is_not_shown_unless_asked_for_and_its_letters_are_kept(self, failed):
        triage(failed, Ignore())
        assert shown(failed) == ()
        asked = GroupFilter(statuses=frozenset({GroupStatus.IGNORED}))
        assert shown(failed, which=asked) == (FINGERPRINT,)
        assert shown(failed, which=GroupFilter()) == (FINGERPRINT,)
        assert save(failed, failure("b", 9_999)) == ((), ())
        assert failed.counts.letters(Filter()) == len(failed.letters.find(Filter()).letters) == 2
        assert failed.monitoring.stats(T0).depth == 2

    def test_until_a_time_it_is_shown_again_by_itself(self, failed):
        triage(failed, Ignore(until=minutes(30)))
        assert shown(failed, at=29) == ()
        assert shown(failed, at=30) == (FINGERPRINT,)
        assert read(failed, at=29).status is GroupStatus.IGNORED
        assert read(failed, at=30).status is GroupStatus.OPEN
        only_ignored = GroupFilter(statuses=frozenset({GroupStatus.IGNORED}))
        assert shown(failed, at=30, which=only_ignored) == ()

    def test_the_first_failure_after_that_time_regresses(self, failed):
        triage(failed, Ignore(until=minutes(30)))
        assert save(failed, failure("b", 29)) == ((), ())
        assert save(failed, failure("c", 31)) == ((), (FINGERPRINT,))
        group = read(failed, at=40)
        assert (group.regressed_at, group.ignored_until) == (minutes(31), None)

    def test_until_this_many_more_letters(self, failed):
        group = triage(failed, Ignore(count=2))
        assert group.ignored_total == 3
        assert save(failed, failure("b", 20)) == ((), ())
        assert save(failed, failure("c", 21)) == ((), (FINGERPRINT,))
        assert read(failed).ignored_total is None

    def test_until_this_many_within_an_hour(self, failed):
        triage(failed, Ignore(rate=4))
        # One letter at 0, these at 65 and 66: a part of the first hour is over.
        assert save(failed, failure("b", 65), failure("c", 66)) == ((), ())
        assert save(failed, failure("d", 120), failure("e", 121)) == ((), ())
        assert save(failed, failure("f", 122), failure("g", 123)) == ((), (FINGERPRINT,))

    def test_ignoring_it_again_sets_other_ends(self, failed):
        triage(failed, Ignore(count=1, until=minutes(30)))
        group = triage(failed, Ignore(rate=100))
        assert (group.ignored_total, group.ignored_until, group.ignored_rate) == (None, None, 100)
        assert save(failed, failure("b", 31)) == ((), ())


class TestActs:
    def test_reopening_undoes_the_decision(self, failed):
        triage(failed, Resolve(release="2"))
        group = triage(failed, Reopen(), who="bob")
        assert (group.status, group.resolved_in, group.status_by) == (GroupStatus.OPEN, "", "bob")

    def test_reopening_takes_the_mark_away(self, failed):
        triage(failed, Resolve())
        failed.letters.save([failure("b", 12)])
        triage(failed, Reopen(), at=13)
        assert read(failed).regressed_at is None

    def test_note_and_owner_stay_whatever_is_decided(self, failed):
        triage(failed, Annotate(note="see\nticket\x00 7"))
        triage(failed, Assign(owner="bob"))
        group = triage(failed, Ignore())
        assert (group.note.splitlines()[0], group.owner) == ("see", "bob")
        assert triage(failed, Annotate(note="")).note == ""
        assert triage(failed, Assign(owner="")).owner == ""

    def test_a_group_that_is_not_there(self, failed):
        with pytest.raises(UnknownGroup, match="No group has this fingerprint"):
            triage(failed, Reopen(), fingerprint="9c1e")
        assert failed.groups.get("9c1e", now=T0) is None
        assert failed.audit.find().rows == ()

    @pytest.mark.parametrize(
        ("act", "detail"),
        [
            (Ignore(until=minutes(30), rate=5), {"until": minutes(30).isoformat(), "rate": 5}),
            (Ignore(), {}),
            (Resolve(release="2"), {"release": "2"}),
            (Reopen(), {}),
            (Annotate(note="known"), {"note": "known"}),
            (Assign(owner="bob"), {"owner": "bob"}),
        ],
        ids=lambda value: getattr(value, "name", ""),
    )
    def test_each_is_audited(self, failed, act, detail):
        triage(failed, act)
        (row,) = failed.audit.find().rows
        assert (row.at, row.who, row.act, row.count) == (minutes(10), "ann", act.name, 1)
        assert row.detail == {"group": FINGERPRINT, **detail}

    def test_a_group_of_several_rows_is_treated_as_one(self, store):
        store.letters.save([failure("a"), failure("b", 1, task="shop.mail"), failure("c", 2)])
        assert triage(store, Assign(owner="bob")).task == "shop.charge"
        triage(store, Resolve())
        assert [group.owner for group in store.groups.find(Filter(), now=T0)] == ["bob", "bob"]
        assert save(store, failure("d", 20, task="shop.mail")) == ((), (FINGERPRINT,))
        statuses = {group.task: group.status for group in store.groups.find(Filter(), now=T0)}
        assert statuses["shop.charge"] is GroupStatus.RESOLVED

    @pytest.mark.on_servers
    def test_writers_at_once_open_a_group_once(self, failed):
        triage(failed, Resolve())
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(lambda at: save(failed, failure(f"n{at}", at)), range(20, 32)))
        assert sorted(done)[-1] == ((), (FINGERPRINT,))
        assert done.count(((), ())) == len(done) - 1


class TestCost:
    @pytest.mark.parametrize("decided", [None, Resolve(release="2"), Ignore(count=10_000)])
    def test_a_save_asks_about_its_groups_once(self, failed, decided):
        if decided:
            triage(failed, decided)
        asked = []

        def note(connection, cursor, statement, parameters, context, executemany):
            if re.search(r"FROM celery_dead_letter_(group|trend)\b", statement):
                asked.append(statement)

        batch = [failure(f"b{number}", 5, release="1") for number in range(100)]
        event.listen(failed.database.engine, "before_cursor_execute", note)
        try:
            failed.letters.save(batch)
        finally:
            event.remove(failed.database.engine, "before_cursor_execute", note)
        # Groups with a decision are read whole.
        assert len(asked) == (2 if decided else 1)


class TestChoosing:
    @pytest.fixture
    def several(self, store):
        """Groups with different decisions; the regressed one is also the newest."""
        for name in ("open", "resolved", "ignored", "regressed", "empty", "plain"):
            store.letters.save([failure(name, fingerprint=name)])
        for name in ("resolved", "regressed", "empty"):
            triage(store, Resolve(), fingerprint=name)
        triage(store, Ignore(), fingerprint="ignored")
        triage(store, Assign(owner="bob"), fingerprint="open")
        store.letters.save([failure("again", 11, fingerprint="regressed")])
        store.closing.discard(Filter(ids=("empty", "plain")), who="ann", why="", now=minutes(12))
        return store

    @pytest.mark.parametrize(
        ("which", "expected"),
        [
            ({}, {"open", "resolved", "ignored", "regressed"}),
            ({"statuses": {GroupStatus.OPEN}}, {"open", "regressed"}),
            ({"statuses": {GroupStatus.RESOLVED}}, {"resolved"}),
            ({"statuses": {GroupStatus.RESOLVED}, "emptied": True}, {"resolved", "empty"}),
            ({"emptied": True}, {"open", "resolved", "ignored", "regressed", "empty"}),
            ({"marks": {Mark.NEW}}, {"open"}),
            ({"marks": {Mark.REGRESSED}}, {"regressed"}),
            ({"marks": {Mark.NEW, Mark.REGRESSED}}, {"open", "regressed"}),
            ({"owner": "bob"}, {"open"}),
            ({"owner": "bo"}, set()),
        ],
    )
    def test_by_status_mark_and_owner(self, several, which, expected):
        which = {
            name: frozenset(value) if isinstance(value, set) else value
            for name, value in which.items()
        }
        assert set(shown(several, which=GroupFilter(**which))) == expected

    def test_new_is_over_after_a_day(self, several):
        new = GroupFilter(marks=frozenset({Mark.NEW}))
        assert shown(several, at=24 * 60 - 1, which=new) == ("open",)
        assert shown(several, at=24 * 60, which=new) == ()

    def test_fingerprints_by_their_beginning(self, several):
        assert several.groups.match("re") == ["regressed", "resolved"]
        assert several.groups.match("re", limit=1) == ["regressed"]
        assert several.groups.match("x") == []


class TestTrends:
    def test_arrivals_by_the_hour_the_present_one_last(self, store):
        store.letters.save(
            [
                failure("a", 0),
                failure("b", 59),
                failure("c", 60),
                failure("d", 60, fingerprint="other"),
                failure("old", -60),
                failure("ahead", 180),
            ]
        )
        trends = store.groups.trends([FINGERPRINT, "other", "none"], now=minutes(130), hours=3)
        assert trends == {FINGERPRINT: (2, 1, 1), "other": (0, 1, 0), "none": (0, 0, 0)}

    def test_dying_again_is_an_arrival_and_a_copy_is_not(self, failed):
        failed.letters.save([failure("a"), failure("a", 5, redrive=1)])
        assert failed.groups.trends([FINGERPRINT], now=T0, hours=1) == {FINGERPRINT: (2,)}

    def test_an_unknown_group_has_none(self, store):
        assert store.groups.trends([], now=T0) == {}


def test_the_message_of_a_group_is_that_of_an_open_letter(store):
    for number in range(4):
        one = failure(
            f"n{number}", number, message="tenant acme" if number < 2 else "tenant globex"
        )
        store.letters.save([one])
    assert read(store).message == "tenant globex"
    store.closing.discard(Filter(ids=("n2", "n3")), who="ann", why="", now=minutes(9))
    assert read(store).message == "tenant acme"
    assert [one.message for one in store.groups.find(Filter(), now=minutes(20))] == ["tenant acme"]
    store.closing.discard(Filter(ids=("n0", "n1")), who="ann", why="", now=minutes(9))
    assert read(store).message == "tenant globex", "none is open"


def test_a_group_has_the_verdict_on_its_newest_open_letter(store):
    def judged(name, minutes, verdict, rule):
        return failure(name, minutes, explanation=Explanation(verdict=verdict, rule=rule))

    def verdicts():
        [listed] = store.groups.find(Filter(), now=minutes(20), which=GroupFilter(emptied=True))
        assert (listed.verdict, listed.rule) == (read(store).verdict, read(store).rule)
        return listed.verdict, listed.rule

    transient, terminal = (Verdict.TRANSIENT, "http.status"), (Verdict.TERMINAL, "python.bug")
    store.letters.save([judged("old", 1, *terminal), judged("new", 2, *transient)])
    assert verdicts() == transient
    store.closing.discard(Filter(ids=("new",)), who="ann", why="", now=minutes(9))
    assert verdicts() == terminal
    store.closing.discard(Filter(ids=("old",)), who="ann", why="", now=minutes(9))
    triage(store, Ignore())
    assert verdicts() == transient, "that of the newest closed one"


def test_a_group_without_stored_letters_has_no_verdict(store):
    store.letters.save([failure("gone")])
    triage(store, Ignore())
    store.deleting.delete(
        Filter(ids=("gone",), states=frozenset({State.DEAD})), who="ann", why="x", now=minutes(9)
    )
    assert (read(store).verdict, read(store).rule) == (None, "")


def test_letters_and_their_failures_are_counted_apart(store):
    store.letters.save([failure(name) for name in "abc"])
    store.closing.discard(Filter(ids=("c",)), who="ann", why="", now=minutes(1))
    for redrive in (1, 2):
        redriving.claim(
            store, Filter(ids=("a",)), token=f"t{redrive}", lease_until=minutes(9), limit=1,
            now=minutes(5),
        )  # fmt: skip
        store.letters.save([failure("a", 5 + redrive, redrive)])
    found = read(store)
    assert (found.open_count, found.letter_count, found.total_count) == (2, 3, 5)
