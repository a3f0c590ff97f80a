"""The list of letters: filters, pages and errors."""

import threading

import pytest
from support.factories import T0, attempt, letter

from celery_dlq.errors import StoreUnavailable
from celery_dlq.flower.resources import letters
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter, Number
from celery_dlq.store.letters import counting, pages
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
        ("release=1.4.2&rule=python.", ["77e1", "0d3f2222-bbbb", "0d3f1111-aaaa"]),
        ("release=1.4", []),
        ("root=77e1", ["77e1"]),
        ("tag=money", []),
        ("verdict=terminal&task=mail", ["77e1"]),
        ("verdict=transient", []),
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


def test_fields_of_the_failure_stay_in_the_form_and_in_the_acts(ann, store):
    store.letters.save([letter("tagged", tags=("a&b",), root_id="77e1")])
    query = "release=1.4.2&tag=a%26b&root=77e1&rule=python.&verdict=terminal"
    page = ann.get(f"{LETTERS}?{query}&state=dead")
    values = {"release": "1.4.2", "tag": "a&b", "root": "77e1", "rule": "python."}
    for name, value in values.items():
        [(field, _)] = page.find("input", name=name)
        assert field["value"] == value
    assert [text for field, text in page.find("option") if "selected" in field] == ["terminal"]
    [(link, _)] = [one for one in page.find("a") if one[1] == "Redrive all that match"]
    assert query in link["href"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("tsk=mail", "did you mean 'task'"),
        ("nonsense=1", "there are task, exception"),
        ("state=undead", "there are dead, claimed"),
        ("reason=%F0%9F%90%B0", "is not a reason"),
        ("verdict=transent", "did you mean 'transient'"),
        ("verdict=transient&verdict=terminal", "more than once"),
        ("since=yesterdayish", "write 90m"),
        ("since=1h&until=2h", "is not before"),
        ("since=99999999999w", "is not a time"),
        ("after=nonsense", "is not a cursor"),
        ("after=1.2.3", "is not a cursor"),
        ("task=a&task=b", "more than once"),
        ("held=0", "held must be 1, or left out, not '0'"),
        ("held=1&held=1", "more than once"),
        ("id=", "An id is empty"),
        ("search=%FF", "not UTF-8"),
    ],
)
def test_an_invalid_filter_is_reported_and_finds_nothing(ann, query, said):
    page = ann.get(f"{LETTERS}?{query}")
    assert page.status == 400
    [(_, text)] = page.find("p", role="alert")
    assert said in text
    assert page.find("input", name="id") == []


def test_pages_follow_each_other_by_key(ann, store):
    store.letters.save([letter(f"more-{n:03}", attempt(minutes=-n)) for n in range(60)])
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
    assert "No open letters." in page.text
    assert "No letters match" in visit().get(f"{LETTERS}?task=charge").text


@pytest.fixture
def many(store):
    """More letters of one task than fit on a page."""
    store.letters.save(
        [letter(f"more-{n:03}", attempt(minutes=-n), task="many") for n in range(60)]
    )


def test_letters_of_one_page_need_no_count_query(ann, three, store, monkeypatch):
    def count(wanted):
        raise AssertionError

    monkeypatch.setattr(store.counts, "for_screen", count)
    assert "3 letters open" in ann.get(LETTERS).text
    assert "1 letter matches" in ann.get(f"{LETTERS}?task=mail").text


def test_letters_are_listed_even_if_counting_fails(ann, many, store, monkeypatch):
    def count(wanted):
        raise StoreUnavailable

    monkeypatch.setattr(store.counts, "for_screen", count)
    page = ann.get(f"{LETTERS}?task=many")
    assert len(shown(page)) == 50
    assert "More than 50 letters match, newest" in page.text
    assert "More than 50 letters open" in ann.get(LETTERS).text
    [(following, _)] = page.find("a", rel="next")
    assert "10 letters on this page" in ann.get(following["href"]).text


def test_the_wait_for_a_count_is_short(ann, many, store, monkeypatch):
    counted = threading.Event()
    monkeypatch.setattr(letters, "COUNT_PATIENCE_S", 0.05)
    monkeypatch.setattr(store.counts, "for_screen", lambda wanted: counted.wait(60) and Number(63))
    assert "More than 50" in ann.get(LETTERS).text
    monkeypatch.setattr(letters, "COUNT_PATIENCE_S", 60)
    counted.set()
    assert "63 letters open" in ann.get(LETTERS).text


def test_a_count_that_ended_at_its_limit_has_a_plus(ann, many, store, monkeypatch):
    monkeypatch.setattr(counting, "SHOWN_LIMIT", 55)
    assert "55+ letters match, newest" in ann.get(f"{LETTERS}?since=2026-01-01&task=many").text
    assert "60 letters match, newest" in ann.get(f"{LETTERS}?task=many").text


class TestNothingMatches:
    def test_closed_letters_that_match_are_counted_and_one_click_away(self, ann, store):
        store.letters.save([letter("paid", kwargs={"order_id": 4711})])
        store.closing.discard(Filter(ids=("paid",)), who="ann", why="", now=T0)
        page = ann.get(f"{LETTERS}?arg=order_id%3D4711")
        assert "No letters match." in page.text
        [(_, said)] = page.find("p", id="dlq-closed-too")
        assert said == "1 closed letter also matches"
        [(found, _)] = page.find("a", href=f"{LETTERS}?arg=order_id%3D4711&state=discarded")
        assert "1 letter matches" in ann.get(found["href"]).text

    def test_closed_letters_do_not_count_if_states_are_chosen(self, ann, store):
        store.closing.discard(Filter(), who="ann", why="", now=T0)
        assert ann.get(f"{LETTERS}?task=charge").find("p", id="dlq-closed-too")
        assert not ann.get(f"{LETTERS}?task=charge&state=dead").find("p", id="dlq-closed-too")

    @pytest.mark.parametrize(
        ("query", "meant"),
        [
            ("task=chagre", "'chagre' is not the task of a letter; did you mean 'shop.charge'?"),
            ("exception=valueerr", "did you mean 'ValueError'?"),
            ("queue=celerx", "did you mean 'celery'?"),
            ("release=1.4.3", "did you mean '1.4.2'?"),
            ("route=nowhere", "'nowhere' is not the route of a letter; none exists."),
        ],
    )
    def test_names_that_are_near_are_offered(self, ann, query, meant):
        [(_, said)] = ann.get(f"{LETTERS}?{query}").find("p", **{"class": "dlq-note dlq-near"})
        assert meant in said

    def test_a_list_with_letters_asks_for_no_names(self, ann, store, monkeypatch):
        monkeypatch.setattr(
            type(store.counts), "names", lambda *_: pytest.fail("a page with letters")
        )
        assert "match" in ann.get(f"{LETTERS}?task=charge").text


class TestSearch:
    @pytest.fixture(autouse=True)
    def short_steps(self, monkeypatch):
        monkeypatch.setattr(letters, "SEARCH_PATIENCE_S", 0)
        monkeypatch.setattr(pages, "STEP", 2)

    def test_a_page_says_how_far_it_searched_and_links_on(self, ann, three):
        page = ann.get(f"{LETTERS}?search=slow")
        assert shown(page) == ["77e1"]
        assert "1 letter on this page" in page.text
        [(note, said)] = page.find("p", id="dlq-searched")
        assert "Searched back to 2026-11-21 12:20:00 UTC; older letters may also match" in said
        assert note["role"] == "status"
        [(following, text)] = page.find("a", rel="next")
        assert text == "Continue the search"
        assert "search=slow" in following["href"]
        rest = ann.get(following["href"])
        assert "No more letters match." in rest.text
        assert rest.find("p", id="dlq-searched") == []
        assert rest.find("a", rel="next") == []

    def test_a_page_without_letters_is_not_the_end_of_the_search(self, ann, three):
        page = ann.get(f"{LETTERS}?search=nothing+like+it")
        assert shown(page) == []
        assert "No letters match" not in page.text
        assert "No matching letters found so far." in page.text
        [(results, _)] = page.find("div", id="dlq-results")
        assert "data-searching" in results
        [(following, _)] = page.find("a", rel="next")
        assert (
            "data-searching" not in ann.get(following["href"]).find("div", id="dlq-results")[0][0]
        )

    def test_a_finished_search_shows_its_count(self, ann, three, monkeypatch):
        monkeypatch.setattr(letters, "SEARCH_PATIENCE_S", 60)
        page = ann.get(f"{LETTERS}?search=slow")
        assert "1 letter matches, newest failure first" in page.text
        assert page.find("p", id="dlq-searched") == []

    def test_many_are_not_counted_one_by_one(self, ann, many, store, monkeypatch):
        monkeypatch.setattr(letters, "SEARCH_PATIENCE_S", 60)
        monkeypatch.setattr(store.counts, "for_screen", lambda wanted: pytest.fail("counted"))
        assert "More than 50 letters match" in ann.get(f"{LETTERS}?search=many").text

    def test_a_worker_is_searched_for_too(self, ann, three):
        assert "Searched back" in ann.get(f"{LETTERS}?worker=nobody").text


def test_a_closed_letter_is_shown_when_it_is_asked_for(ann, store, three):
    wanted = Filter(ids=("77e1",), states=frozenset({State.DEAD}))
    store.closing.discard(wanted, who="bob", why="test", now=times.utc_now())
    assert "77e1" not in shown(ann.get(LETTERS))
    assert shown(ann.get(f"{LETTERS}?state=discarded")) == ["77e1"]


def test_held_letters_are_marked_and_can_be_filtered(ann, hold):
    hold("0d3f1111-aaaa", 'it failed "differently" <b>')
    page = ann.get(LETTERS)
    [(mark, text)] = page.find("span", class_="dlq-state dlq-state-held")
    assert (text, mark["title"]) == ("held", 'it failed "differently" <b>')
    assert "held by charges" in page.text
    page = ann.get(f"{LETTERS}?held=1")
    assert shown(page) == ["0d3f1111-aaaa"]
    assert "1 letter matches" in page.text
    assert "checked" in page.find("input", name="held")[0][0]
    assert page.find("a", href="/dead-letters/redrive?held=1")
    # The act is on these letters, too.
    confirm = ann.get("/dead-letters/redrive?held=1")
    assert "Redrive 1 letter" in confirm.text
    assert ("held", "1") in confirm.form("/dead-letters/redrive")
    assert "0d3f1111" in confirm.text
    assert shown(ann.get(f"{LETTERS}?held=1&task=mail")) == []
