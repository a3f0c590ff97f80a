"""The list of letters: filters, pages, what is wrong with them."""

import threading

import pytest
from factories import attempt, letter

from celery_dlq.errors import StoreUnavailable
from celery_dlq.flower.pages import letters
from celery_dlq.states import State
from celery_dlq.store.base import Filter
from celery_dlq.view import times

LETTERS = "/dead-letters/letters"


def shown(answer):
    """The ids of the letters on a page."""
    assert answer.status == 200, answer.text
    return [found["value"] for found, _ in answer.find("input", name="id")]


def test_the_tab_is_on_flowers_pages_and_leads_to_ours(ann):
    [(found, text)] = ann.get("/tasks").find("a", href="/dead-letters")
    assert text == "Dead letters"
    assert "active" not in found["class"]
    ours = ann.get(LETTERS).find("a", href="/dead-letters")
    assert [found["class"] for found, text in ours if text == "Dead letters"] == ["nav-link active"]


def test_open_letters_newest_first(ann, three):
    assert shown(ann.get(LETTERS)) == ["77e1", "0d3f2222-bbbb", "0d3f1111-aaaa"]
    assert "3 letters open" in ann.get(LETTERS).text


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("task=mail", ["77e1"]),
        ("exception=ValueError&queue=celery", ["0d3f2222-bbbb", "0d3f1111-aaaa"]),
        ("group=aaaa", ["77e1"]),
        ("since=45m&until=35m", ["0d3f2222-bbbb"]),
        ("since=2026-11-21T12:25:00Z", ["77e1"]),
        ("worker=celery", ["77e1", "0d3f2222-bbbb", "0d3f1111-aaaa"]),
        ("search=SLOW", ["77e1"]),
        ("reason=terminal&state=dead", ["77e1", "0d3f2222-bbbb", "0d3f1111-aaaa"]),
        ("id=77e1&id=0d3f1111-aaaa", ["77e1", "0d3f1111-aaaa"]),
        ("task=&state=&since=", ["77e1", "0d3f2222-bbbb", "0d3f1111-aaaa"]),
    ],
)
def test_filters_are_those_of_the_command_line(ann, query, found):
    assert shown(ann.get(f"{LETTERS}?{query}")) == found


def test_a_filter_stays_in_the_form_and_in_the_acts(ann):
    page = ann.get(f"{LETTERS}?task=mail&state=dead&state=parked&search=%22%3E%27")
    [(field, _)] = page.find("input", name="task")
    assert field["value"] == "mail"
    [(field, _)] = page.find("input", name="search")
    assert field["value"] == "\">'"
    assert "checked" in page.find("input", name="state", value="parked")[0][0]
    assert "checked" not in page.find("input", name="state", value="claimed")[0][0]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("tsk=mail", "did you mean 'task'"),
        ("nonsense=1", "there are task, exception"),
        ("state=undead", "there are dead, claimed"),
        ("reason=%F0%9F%90%B0", "is no reason"),
        ("since=yesterdayish", "write 90m"),
        ("since=1h&until=2h", "is not before"),
        ("since=99999999999w", "is no time"),
        ("after=nonsense", "is no page mark"),
        ("after=1.2.3", "is no page mark"),
        ("task=a&task=b", "more than once"),
        ("id=", "An id is empty"),
        ("search=%FF", "no UTF-8"),
    ],
)
def test_nonsense_is_told_and_finds_nothing(ann, query, said):
    page = ann.get(f"{LETTERS}?{query}")
    assert page.status == 400
    [(_, text)] = page.find("p", role="alert")
    assert said in text
    assert page.find("input", name="id") == []


def test_pages_follow_each_other_by_key(ann, store):
    store.save([letter(f"more-{n:03}", attempt(minutes=-n)) for n in range(60)])
    first = ann.get(f"{LETTERS}?exception=ValueError")
    assert len(shown(first)) == 50
    [(following, _)] = first.find("a", rel="next")
    assert "exception=ValueError" in following["href"]
    second = ann.get(following["href"])
    assert len(shown(second)) == 12
    assert not set(shown(first)) & set(shown(second))
    assert second.find("a", rel="next") == []


def test_a_store_without_letters_says_so(visit, store):
    page = visit().get(LETTERS)
    assert "nothing waits for anybody" in page.text
    assert "No letters match" in visit().get(f"{LETTERS}?task=charge").text


def test_what_cannot_be_counted_in_time_is_listed_all_the_same(ann, three, store, monkeypatch):
    def count(wanted):
        raise StoreUnavailable

    monkeypatch.setattr(store, "count", count)
    page = ann.get(LETTERS)
    assert shown(page) == list(reversed(three))
    assert "too long to count" in page.text


def test_counting_is_waited_for_a_short_time_only(ann, three, store, monkeypatch, site_of):
    counted = threading.Event()
    monkeypatch.setattr(letters, "COUNT_PATIENCE_S", 0.05)
    monkeypatch.setattr(store, "count", lambda wanted: counted.wait(60) and 3)
    assert "too long to count" in ann.get(LETTERS).text
    monkeypatch.setattr(letters, "COUNT_PATIENCE_S", 60)
    counted.set()
    assert "3 letters open" in ann.get(LETTERS).text


def test_a_closed_letter_is_shown_when_it_is_asked_for(ann, store, three):
    wanted = Filter(ids=("77e1",), states=frozenset({State.DEAD}))
    store.discard(wanted, who="bob", why="test", now=times.utc_now())
    assert "77e1" not in shown(ann.get(LETTERS))
    assert shown(ann.get(f"{LETTERS}?state=discarded")) == ["77e1"]
