"""Groups as users of Python reach them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from support.factories import attempt, letter

from celery_dlq.api.groups import Groups
from celery_dlq.errors import FilterError, TriageError, UnknownGroup
from celery_dlq.model.group import GroupFilter, GroupStatus
from celery_dlq.store.base import Filter

FINGERPRINT = "9c1e0000deadbeef"


@pytest.fixture
def api(store):
    """The API over a store with one letter in each of two groups."""
    now = datetime.now(timezone.utc)
    other = {"fingerprint": "other", "task": "shop.mail"}
    store.letters.save(
        [letter("a", attempt(failed_at=now)), letter("b", attempt(failed_at=now), **other)]
    )
    return Groups(SimpleNamespace(store=store))


def listed(api, *args, **kwargs):
    return {group.fingerprint for group in api.find(*args, **kwargs)}


def test_an_ignored_group_is_left_out_unless_it_is_named(api):
    assert listed(api) == {FINGERPRINT, "other"}
    api.ignore(FINGERPRINT, who="ann")
    assert listed(api) == {"other"}
    assert listed(api, which=GroupFilter()) == {FINGERPRINT, "other"}
    assert listed(api, Filter(task="mail"), limit=1) == {"other"}
    with pytest.raises(FilterError, match="not kept by queue"):
        api.find(Filter(queue="q"))


def test_each_act_returns_the_group_as_it_is_then(api, store):
    until = datetime.now(timezone.utc) + timedelta(days=1)
    ignored = api.ignore(FINGERPRINT, who="ann", until=until, rate=100, count=5)
    assert (ignored.status, ignored.ignored_until, ignored.ignored_rate, ignored.ignored_total) == (
        GroupStatus.IGNORED, until, 100, 6,
    )  # fmt: skip
    assert api.resolve(FINGERPRINT, who="ann", release="2").resolved_in == "2"
    assert api.reopen(FINGERPRINT, who="ann").status is GroupStatus.OPEN
    assert api.note(FINGERPRINT, "known", who="ann").note == "known"
    assert api.assign(FINGERPRINT, "bob", who="ann").owner == "bob"
    assert api.get(FINGERPRINT).owner == "bob"
    acts = [row.act for row in store.audit.find().rows]
    assert acts == ["assign", "note", "reopen", "resolve", "ignore"]


def test_a_failure_after_it_was_resolved_opens_it(api, store):
    api.resolve(FINGERPRINT, who="ann")
    later = datetime.now(timezone.utc) + timedelta(minutes=1)
    store.letters.save([letter("c", attempt(failed_at=later))])
    group = api.get(FINGERPRINT)
    assert (group.status, group.regressed_at) == (GroupStatus.OPEN, later)


def test_a_group_that_is_not_there(api):
    with pytest.raises(UnknownGroup):
        api.get("9c1e")
    with pytest.raises(UnknownGroup):
        api.resolve("9c1e", who="ann")


def test_invalid_arguments_change_nothing(api, store):
    with pytest.raises(TriageError, match="ends nothing"):
        api.ignore(FINGERPRINT, who="ann", count=0)
    with pytest.raises(TriageError, match="use at most 4,000"):
        api.note(FINGERPRINT, "x" * 5_000, who="ann")
    assert api.get(FINGERPRINT).status is GroupStatus.OPEN
    assert store.audit.find().rows == ()
