"""Letters over time: arrivals by minute and hour, a group by the minute, and the releases of a group."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.factories import T0, attempt, letter

from celery_dlq.store.base import Filter
from celery_dlq.store.letters import counting
from celery_dlq.store.letters.counting import ReleaseCount

CAUSE = "9c1e0000deadbeef"


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

    def test_nothing(self, store):
        assert store.over_time.by_minute(since=at(99)) == {}
        assert store.over_time.by_hour(since=at(180)) == {}


class TestReleases:
    def test_each_with_all_its_open_letters_the_newest_first(self, store):
        # Most letters are of the newest release, after many of an old one.
        old = [failed(f"old{number}", number / 10, release="1.4") for number in range(184)]
        new = [failed(f"new{number}", 19 + number, release="1.5") for number in range(243)]
        others = [
            failed("bare", 5, release=""),
            failed("other", 6, release="1.6", fingerprint="other"),
            failed("closed", 7, release="1.7"),
        ]
        store.letters.save([*old, *new, *others])
        store.closing.discard(Filter(ids=("closed",)), who="ann", why="", now=T0)
        assert store.over_time.releases(CAUSE) == [
            ReleaseCount("1.5", 243, at(19)), ReleaseCount("1.4", 184, at(0)),
        ]  # fmt: skip

    def test_a_letter_belongs_to_the_release_that_failed_last(self, store):
        store.letters.save([failed("a", 10, release="1.4")])
        attempts = attempt(minutes=10), attempt(redrive=1, minutes=130)
        store.letters.save([letter("a", *attempts, redrive_count=1, release="1.5")])
        assert store.over_time.releases(CAUSE) == [ReleaseCount("1.5", 1, at(130))]

    def test_too_many_letters_are_not_counted(self, store, monkeypatch):
        store.letters.save([failed(name, 10, release="1.4") for name in "ab"])
        monkeypatch.setattr(counting, "MOST_READ", 2)
        assert store.over_time.releases(CAUSE) == [ReleaseCount("1.4", 2, at(10))]
        monkeypatch.setattr(counting, "MOST_READ", 1)
        assert store.over_time.releases(CAUSE) is None

    def test_a_group_without_letters_has_none(self, store):
        assert store.over_time.releases("none") == []
