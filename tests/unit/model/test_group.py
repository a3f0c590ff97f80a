"""Marks, and what opens a group again."""

from __future__ import annotations

from datetime import timedelta, timezone

import pytest
from support.factories import T0

from celery_dlq.errors import TriageError
from celery_dlq.model.group import (
    NAME_LIMIT,
    NOTE_LIMIT,
    Annotate,
    Arrivals,
    Assign,
    Group,
    GroupStatus,
    Ignore,
    Mark,
    Resolve,
    hour_of,
    is_first,
    opened_by,
    within_hour,
)


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def group(status=GroupStatus.OPEN, **changes) -> Group:
    values = {
        "fingerprint": "9c1e", "task": "shop.charge", "exception_type": "ValueError",
        "message": "bad", "open_count": 3, "total_count": 10, "first_seen_at": T0,
        "last_seen_at": T0, "status": status, **changes,
    }  # fmt: skip
    return Group(**values)


def ignored(**ends) -> Group:
    return group(GroupStatus.IGNORED, status_at=T0, **ends)


def resolved(at=T0) -> Group:
    return group(GroupStatus.RESOLVED, status_at=at)


def arrivals(*at: float, release: str = "") -> Arrivals:
    found = Arrivals()
    for number in at:
        found.add(minutes(number), release)
    return found


def opened(found: Group, brought: Arrivals, *, failed_in=(), in_hour=0.0):
    return opened_by(found, brought, failed_in=frozenset(failed_in), in_hour=in_hour)


class TestMarks:
    def test_a_group_is_new_for_a_day(self):
        assert group().marks(T0 + timedelta(hours=23.9)) == (Mark.NEW,)
        assert group().marks(T0 + timedelta(hours=24)) == ()

    def test_a_regressed_group_is_not_new(self):
        assert group(regressed_at=T0).marks(T0) == (Mark.REGRESSED,)
        assert group(regressed_at=T0).marks(T0 + timedelta(days=9)) == (Mark.REGRESSED,)

    @pytest.mark.parametrize("status", [GroupStatus.IGNORED, GroupStatus.RESOLVED])
    def test_a_group_with_a_decision_has_no_mark(self, status):
        assert group(status, regressed_at=T0).marks(T0) == ()

    def test_the_first_letters_are_all_that_there_are(self):
        assert is_first(group(total_count=2), arrivals(0, 1))
        assert not is_first(group(total_count=3), arrivals(0, 1))


class TestArrivals:
    def test_the_newest_of_each_release_counts(self):
        brought = arrivals(5, 3, release="1")
        brought.add(minutes(4), "2")
        assert brought.count == 3
        assert brought.newest == {"1": minutes(5), "2": minutes(4)}
        assert brought.latest == minutes(5)


class TestOpenedAgain:
    def test_an_open_group_is_open(self):
        assert opened(group(), arrivals(1)) is None

    def test_a_resolved_group_is_opened_by_a_later_failure(self):
        assert opened(resolved(), arrivals(1, 3)) == minutes(3)

    @pytest.mark.parametrize("at", [-1, 0])
    def test_not_by_one_that_is_reported_late(self, at):
        assert opened(resolved(), arrivals(at)) is None

    def test_not_by_releases_that_failed_before(self):
        old = arrivals(5, release="1")
        assert opened(resolved(), old, failed_in=["1"]) is None
        old.add(minutes(3), "2")
        assert opened(resolved(), old, failed_in=["1"]) == minutes(3)

    def test_to_be_ignored_for_good(self):
        assert opened(ignored(), arrivals(9_999), in_hour=1e9) is None

    def test_until_a_time(self):
        found = ignored(ignored_until=minutes(10))
        assert opened(found, arrivals(9.9)) is None
        assert opened(found, arrivals(2, 10)) == minutes(10)

    def test_until_a_count(self):
        assert opened(ignored(ignored_total=11), arrivals(1)) is None
        assert opened(ignored(ignored_total=10), arrivals(1)) == minutes(1)

    def test_until_a_rate(self):
        assert opened(ignored(ignored_rate=5), arrivals(1), in_hour=4.9) is None
        assert opened(ignored(ignored_rate=5), arrivals(1), in_hour=5.0) == minutes(1)

    def test_the_first_condition_ends_it(self):
        found = ignored(ignored_rate=5, ignored_total=99, ignored_until=minutes(10))
        assert opened(found, arrivals(1), in_hour=5.0) == minutes(1)
        assert opened(found, arrivals(10), in_hour=0.0) == minutes(10)


class TestHours:
    def test_the_hour_is_that_of_utc_in_every_zone(self):
        kolkata = timezone(timedelta(hours=5, minutes=30))
        assert hour_of((T0 + timedelta(minutes=59)).astimezone(kolkata)) == T0

    def test_a_share_of_the_previous_hour_counts(self):
        assert within_hour(60, 4, T0) == 64
        assert within_hour(60, 4, minutes(45)) == 19


class TestActs:
    @pytest.mark.parametrize("ends", [{"rate": 0}, {"count": 0}, {"count": -1}])
    def test_an_invalid_end_is_refused(self, ends):
        with pytest.raises(TriageError, match="ends nothing; give 1 or more"):
            Ignore(**ends)

    @pytest.mark.parametrize(
        ("make", "limit"),
        [
            (lambda text: Annotate(note=text), NOTE_LIMIT),
            (lambda text: Assign(owner=text), NAME_LIMIT),
            (lambda text: Resolve(release=text), NAME_LIMIT),
        ],
    )
    def test_long_texts_are_refused_and_not_cut(self, make, limit):
        make("x" * limit)
        with pytest.raises(TriageError, match=f"use at most {limit:,}"):
            make("x" * (limit + 1))

    def test_a_name_that_is_too_long_is_refused_with_the_limit(self):
        with pytest.raises(TriageError) as refused:
            Assign(owner="x" * 256)
        assert str(refused.value) == (
            "The owner has 256 characters; use at most 255. Nothing was changed."
        )
