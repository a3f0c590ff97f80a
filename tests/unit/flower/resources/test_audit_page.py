"""The audit in Flower."""

from datetime import timedelta

import pytest
from support.factories import T0

from celery_dlq.flower.http import request
from celery_dlq.model.group import Annotate, Ignore
from celery_dlq.store.base import Filter

AUDIT = "/dead-letters/audit"
CHARGE = "9c1e0000deadbeef"


@pytest.fixture
def acted(store, three, operation):
    """Three acts of two people."""
    store.closing.discard(Filter(ids=("77e1",)), who="bob", why="test order", now=T0)
    store.groups.triage(CHARGE, Ignore(count=5), who="carol", now=T0 + timedelta(minutes=1))
    store.operations.create(operation(who="carol", created_at=T0 + timedelta(minutes=2)))


def acts(page):
    """The acts in the table."""
    return [text.strip() for found, text in page.find("td") if found.get("data-label") == "Did"]


IGNORED, REDRIVEN, DISCARDED = (
    "ignored the group for 5 more failures", "began a redrive of 0 letters", "discarded 1 letter",
)  # fmt: skip


def test_acts_are_listed_newest_first(ann, acted):
    page = ann.get(AUDIT)
    assert acts(page) == [REDRIVEN, IGNORED, DISCARDED]
    assert "3 acts, newest first." in page.text
    assert "test order" in page.text
    assert page.find("a", href=f"/dead-letters/groups/{CHARGE}")[0][1] == f"group {CHARGE}"
    assert page.find("a", href="/dead-letters/operations/0a1b2c3d4e5f")
    assert [text for _, text in page.find("a", **{"aria-current": "page"})] == [
        "Dead letters",
        "Audit",
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("act=ignore", [IGNORED]),
        ("who=carol", [REDRIVEN, IGNORED]),
        ("letter=77e", [DISCARDED]),
        ("letter=gone", []),
        ("group=9c1e", [IGNORED]),
        ("group=gone", []),
        ("since=2026-11-21T12:02", [REDRIVEN]),
        ("act=&who=&letter=&group=&since=", [REDRIVEN, IGNORED, DISCARDED]),
    ],
)
def test_filters(ann, acted, query, expected):
    assert acts(ann.get(f"{AUDIT}?{query}")) == expected


def test_acts_on_a_deleted_letter_are_found_by_its_id(ann, store, acted):
    wanted = Filter(ids=("77e1",))
    store.deleting.delete(wanted, who="bob", why="asked by legal", now=T0 + timedelta(hours=1))
    assert "deleted 1 letter" in acts(ann.get(f"{AUDIT}?letter=77e1"))


def test_pages_follow_each_other(ann, acted, monkeypatch):
    monkeypatch.setattr(request, "USUAL_ROWS", 2)
    page = ann.get(f"{AUDIT}?since=3d")
    assert "The newest 2 acts" in page.text
    [(following, _)] = page.find("a", rel="next")
    second = ann.get(following["href"])
    assert acts(second) == [DISCARDED]
    assert second.find("a", rel="next") == []
    assert second.find("a", href=f"{AUDIT}?since=3d")[0][1] == "First page"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("act=gone", "act must be one of redrive, pause"),
        ("since=never", "is not a time"),
        ("acts=redrive", "did you mean 'act'"),
        ("after=x", "not a cursor"),
    ],
)
def test_an_invalid_filter_is_reported_on_the_page(ann, acted, query, said):
    page = ann.get(f"{AUDIT}?{query}")
    assert page.status == 400
    assert said in page.find("p", role="alert")[0][1]


def test_an_empty_audit(ann):
    assert "No one has acted yet." in ann.get(AUDIT).text


def test_hostile_texts_stay_text(ann, store, three):
    evil = "<script>alert(1)</script>\u202e"
    store.groups.triage(CHARGE, Annotate(note=evil), who=evil, now=T0)
    page = ann.get(AUDIT)
    assert "<script>alert" not in page.body
    assert "\u202e" not in page.body
