"""Letters over time: arrivals by minute and hour, a group by the minute, and the first sight of releases."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.factories import T0, attempt, letter

from celery_dlq.store.base import Filter
from celery_dlq.store.letters import counting
from celery_dlq.store.letters.counting import FirstSeen

CAUSE = "9c1e0000deadbeef"
EDGES = [T0 + timedelta(hours=number) for number in range(4)]


def at(minutes: float):
    return T0 + timedelta(minutes=minutes)


def failed(name: str, minutes: float, **changes):
    return letter(name, attempt(minutes=minutes), **changes)


class TestArrivals:
    @pytest.fixture(autouse=True)
    def arrived(self, store):
        store.letters.save(
            [
                failed("early", -1),
                failed("a", 0.5),
                failed("b", 0.9, fingerprint="other", task="shop.mail"),
                failed("c", 59),
                failed("d", 61),
            ]
        )

    def test_by_the_minute(self, store):
        assert store.over_time.by_minute(since=T0) == {at(0): 2, at(59): 1, at(61): 1}

    def test_by_the_hour(self, store):
        assert store.over_time.by_hour(since=T0) == {at(0): 3, at(60): 1}

    def test_of_one_group_by_the_minute(self, store):
        found = store.over_time.group_by_minute(CAUSE, since=T0, minutes=60)
        # A failure after the last minute is that of a worker whose clock is ahead.
        assert found == {at(0): 1, at(59): 2}

    def test_closed_letters_of_the_group_count(self, store):
        store.closing.discard(Filter(ids=("a",)), who="ann", why="", now=T0)
        assert store.over_time.group_by_minute(CAUSE, since=T0, minutes=1) == {at(0): 3}

    def test_a_letter_that_failed_twice_counts_at_its_last_failure(self, store):
        store.letters.save([letter("a", attempt(1, 1, 30))])
        found = store.over_time.group_by_minute(CAUSE, since=T0, minutes=60)
        assert found == {at(30): 1, at(59): 2}

    def test_too_many_letters_are_not_counted(self, store, monkeypatch):
        monkeypatch.setattr(counting, "MOST_COUNTED", 3)
        assert store.over_time.group_by_minute(CAUSE, since=T0, minutes=60) is not None
        monkeypatch.setattr(counting, "MOST_COUNTED", 2)
        assert store.over_time.group_by_minute(CAUSE, since=T0, minutes=60) is None

    def test_nothing(self, store):
        assert store.over_time.by_minute(since=at(99)) == {}
        assert store.over_time.by_hour(since=at(180)) == {}
        assert store.over_time.group_by_minute("none", since=T0, minutes=60) == {}


def again(name: str, first: float, then: float, **changes):
    """A letter whose redrive has failed."""
    attempts = attempt(minutes=first), attempt(redrive=1, minutes=then)
    return letter(name, *attempts, redrive_count=1, **changes)


class TestReleases:
    def test_each_with_its_first_letter_in_their_order(self, store):
        store.letters.save(
            [
                failed("a", 70, release="1.5"),
                failed("b", 10, release="1.4"),
                failed("c", 20, release="1.4"),
                failed("d", 65, release="1.5", fingerprint="other"),
                failed("e", 90, release=""),
                failed("f", 200, release="1.6"),
            ]
        )
        assert store.over_time.releases(EDGES) == [
            FirstSeen("1.4", at(10)),
            FirstSeen("1.5", at(65)),
        ]
        assert store.over_time.releases(EDGES, fingerprint=CAUSE)[1] == FirstSeen("1.5", at(70))

    def test_a_release_that_was_seen_before_is_left_out(self, store):
        store.letters.save([failed("a", -10, release="1.4"), failed("b", 10, release="1.4")])
        assert store.over_time.releases(EDGES) == []

    def test_closed_letters_have_been_seen(self, store):
        store.letters.save([failed("a", 10, release="1.4"), failed("b", 20, release="1.4")])
        store.closing.discard(Filter(ids=("a",)), who="ann", why="", now=T0)
        assert store.over_time.releases(EDGES) == [FirstSeen("1.4", at(10))]

    def test_the_first_letters_of_each_part_are_read(self, store, monkeypatch):
        monkeypatch.setattr(counting, "MOST_READ", 6)
        store.letters.save(
            [failed(f"old{n}", n, release="1.4") for n in range(30)]
            + [failed("new", 40, release="1.5"), failed("newer", 61, release="1.5")]
        )
        assert [one.release for one in store.over_time.releases(EDGES)] == ["1.4", "1.5"]
        assert store.over_time.releases(EDGES)[1].at == at(61)

    def test_a_failure_of_a_redrive_does_not_move_the_beginning_of_its_release(self, store):
        store.letters.save([failed(name, 10, release="1.4") for name in "ab"])
        store.letters.save([again(name, 10, 130, release="1.4") for name in "ab"])
        assert store.over_time.releases(EDGES) == [FirstSeen("1.4", at(10))]
        assert store.over_time.releases(EDGES[1:]) == [], "it began before"

    def test_a_failure_of_a_redrive_in_another_release_is_its_beginning(self, store):
        store.letters.save([failed(name, 10 + n, release="1.4") for n, name in enumerate("abc")])
        store.letters.save([again("a", 10, 130, release="1.5")])
        store.letters.save([failed("d", 140, release="1.5")])
        assert store.over_time.releases(EDGES) == [
            FirstSeen("1.4", at(11)), FirstSeen("1.5", at(130)),
        ]  # fmt: skip
