from __future__ import annotations

import math
from datetime import timedelta

import pytest
from support.factories import T0, attempt, letter
from support.stores import redriving

from celery_dlq.errors import FilterError
from celery_dlq.model.group import Group, GroupMark
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.store.base import Filter


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def at(task_id: str, number: float = 0, **changes):
    return letter(task_id, attempt(minutes=number), **changes)


@pytest.fixture
def groups(store):
    store.letters.save(
        [
            at("a", 0, fingerprint="aa", message="first"),
            at("b", 5, fingerprint="aa", message="second"),
            at("c", 3, fingerprint="bb", task="shop.ship", exception_type="KeyError"),
            at("d", 9, fingerprint="cc", task="bank.charge"),
            at("e", 9, fingerprint="cc", task="bank.charge"),
            at("f", 9, fingerprint="cc", task="bank.charge"),
        ]
    )
    return store


def fingerprints(store, **filters) -> list[str]:
    return [group.fingerprint for group in store.groups.find(Filter(**filters), now=T0)]


@pytest.mark.on_servers
def test_groups_come_largest_first(groups):
    assert fingerprints(groups) == ["cc", "aa", "bb"]
    assert [group.fingerprint for group in groups.groups.find(Filter(), now=T0, limit=1)] == ["cc"]


@pytest.mark.on_servers
def test_a_group_says_what_it_is_about(groups):
    assert groups.groups.find(Filter(group="aa"), now=T0) == [
        Group(
            fingerprint="aa",
            task="shop.charge",
            exception_type="ValueError",
            message="second",
            open_count=2,
            letter_count=2,
            total_count=2,
            first_seen_at=T0,
            last_seen_at=minutes(5),
            verdict=Verdict.TERMINAL,
            rule="python.bug",
        )
    ]


@pytest.mark.on_servers
def test_groups_are_filtered_by_what_they_have(groups):
    for filters, expected in (
        ({"task": "charge"}, ["cc", "aa"]),
        ({"task": "shop.ship"}, ["bb"]),
        ({"exception": "KeyError"}, ["bb"]),
        ({"group": "a"}, ["aa"]),
        ({"since": minutes(5)}, ["cc", "aa"]),
        ({"until": minutes(5)}, ["bb"]),
    ):
        assert fingerprints(groups, **filters) == expected, filters


def test_filters_that_groups_do_not_have_are_refused_rather_than_ignored(store):
    for name, value in {
        "queue": "q",
        "reason": Reason.TIMEOUT,
        "worker": "w",
        "search": "x",
        "release": "1",
        "tag": "x",
        "root": "a",
        "verdict": Verdict.TERMINAL,
        "rule": "http.",
        "ids": ("a",),
        "states": frozenset({State.DEAD}),
    }.items():
        print("filter", name)  # a failed test shows which one it was
        with pytest.raises(
            FilterError, match=rf"not kept by {name}.*use: celery -A <app> dlq list"
        ):
            store.groups.find(Filter(**{name: value}), now=T0)


@pytest.mark.on_servers
def test_a_group_without_open_letters_is_not_listed_but_remembered(groups):
    groups.closing.discard(Filter(group="aa"), who="ann", why="", now=minutes(10))
    assert fingerprints(groups) == ["cc", "bb"]
    groups.letters.save([at("g", 20, fingerprint="aa")])
    (group,) = groups.groups.find(Filter(group="aa"), now=T0)
    assert (group.open_count, group.total_count, group.first_seen_at) == (1, 3, T0)


def test_a_long_message_is_a_short_example(store):
    store.letters.save([at("a", message="x" * 10_000)])
    assert len(store.groups.find(Filter(), now=T0)[0].message) <= 500


@pytest.mark.on_servers
def test_the_store_at_a_glance(groups):
    redriving.claim(
        groups, Filter(ids=("a",)), token="t", lease_until=minutes(90), limit=1, now=minutes(10)
    )
    stats = groups.monitoring.stats(minutes(10))
    assert stats.depth == 6
    assert stats.by_state == {
        State.DEAD: 5, State.CLAIMED: 1, State.REDRIVEN: 0, State.RESOLVED: 0, State.DISCARDED: 0,
        State.PARKED: 0,
    }  # fmt: skip
    assert list(stats.by_task.items()) == [("bank.charge", 3), ("shop.charge", 2), ("shop.ship", 1)]
    assert stats.by_exception == {"ValueError": 5, "KeyError": 1}
    assert stats.by_reason == {Reason.TERMINAL: 6}
    assert stats.oldest_open_at == T0
    assert stats.arrivals == (0,) * 23 + (6,)


@pytest.mark.on_servers
def test_an_empty_store_at_a_glance(store):
    stats = store.monitoring.stats(T0)
    assert stats.depth == sum(stats.by_state.values()) == 0
    assert (stats.by_task, stats.by_exception, stats.by_reason) == ({}, {}, {})
    assert stats.oldest_open_at is None
    assert stats.arrivals == (0,) * 24
    assert set(stats.ages.values()) == {0}


@pytest.mark.on_servers
def test_open_letters_are_counted_by_age(store):
    hour, day = 60, 24 * 60
    ages = [0.5, 0.99, 1, 5, hour, 2 * hour, day, 6 * day, 7 * day, 99 * day]
    store.letters.save([at(f"{number}", -age) for number, age in enumerate(ages)])
    assert store.monitoring.stats(T0).ages == {60: 2, 3_600: 2, 86_400: 2, 604_800: 2, math.inf: 2}


@pytest.mark.on_servers
def test_arrivals_are_counted_by_the_hour_of_the_failure(store):
    store.letters.save([at("now", 0), at("hour", -60), at("day", -23.5 * 60), at("old", -25 * 60)])
    arrivals = store.monitoring.stats(T0).arrivals
    assert len(arrivals) == 24
    assert (arrivals[23], arrivals[22], arrivals[0], sum(arrivals)) == (1, 1, 1, 3)


def test_a_worker_whose_clock_is_ahead_arrives_in_the_present_hour(store):
    store.letters.save([at("ahead", 7)])
    assert store.monitoring.stats(T0).arrivals[23] == 1


class TestPages:
    @pytest.fixture
    def many(self, store):
        """Nine groups: of equal size at the same time, at another time, and larger ones."""
        store.letters.save(
            [
                letter(
                    f"{name}-{n}",
                    attempt(minutes=5 if name == "f" else 0),
                    fingerprint=name[0],
                    task=f"shop.{name}",
                    exception_type="E",
                )
                for name, size in (("a", 1), ("b", 1), ("ca", 1), ("cb", 1), ("d", 1), ("e", 3), ("f", 1),
                                   ("g", 2), ("h", 2))
                for n in range(size)
            ]
        )  # fmt: skip
        return store

    @pytest.mark.parametrize("limit", [1, 2, 4, 9])
    @pytest.mark.on_servers
    def test_they_lose_and_repeat_nothing(self, many, limit):
        found, after = [], None
        while True:
            page = many.groups.find(Filter(), now=T0, limit=limit, after=after)
            found += [group.task for group in page]
            if not page:
                break
            after = GroupMark.of(page[-1]).cursor
        assert found == [f"shop.{name}" for name in ("e", "g", "h", "f", "a", "b", "ca", "cb", "d")]

    def test_a_text_that_is_not_a_cursor_is_refused(self, store):
        for mark in ("", "x", "[]", "[1,2]", '[1,2,"a","b",3]', '["1",2,"a","b","c"]', "{}",
                     '[1,' + "9" * 40 + ',"a","b","c"]', '[1,null,"a","b","c"]', "[" * 9_999):  # fmt: skip
            print("cursor", mark)  # a failed test shows which one it was
            with pytest.raises(FilterError, match="not a cursor of groups"):
                store.groups.find(Filter(), now=T0, after=mark)

    @pytest.mark.on_servers
    def test_a_hostile_mark_finds_nothing(self, many):
        mark = "[" + "9" * 60 + ',-1,"\\ud800\\u0000","","\'"]'
        assert len(many.groups.find(Filter(), now=T0, after=mark)) == 9
        assert many.groups.find(Filter(), now=T0, after='[-5,0,"","",""]') == []


@pytest.mark.on_servers
def test_the_example_of_a_group_is_the_message_of_its_newest_open_letter(groups):
    groups.letters.save([at("g", 2, fingerprint="aa", message="older")])
    (group,) = groups.groups.find(Filter(group="aa"), now=T0)
    assert group.message == "second"
    groups.closing.discard(Filter(ids=("b",)), who="ada", why="", now=minutes(20))
    (group,) = groups.groups.find(Filter(group="aa"), now=T0)
    assert group.message == "older"
    groups.letters.save([at("h", 21, fingerprint="aa", message="newer")])
    (group,) = groups.groups.find(Filter(group="aa"), now=T0)
    assert group.message == "newer"
