"""The box of the list: what a person types, as filters."""

import json
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from support.factories import attempt, letter

from celery_dlq.flower.resources import letters
from celery_dlq.flower.resources.letters import read_line
from celery_dlq.store.letters import pages

LETTERS = "/dead-letters/letters"


@pytest.mark.parametrize(
    ("line", "pairs", "text"),
    [
        ("4711", [], "4711"),
        ("  bad   currency ", [], "bad currency"),
        ("task:charge bad state:dead", [("task", "charge"), ("state", "dead")], "bad"),
        ("order_id=4711", [("arg", "order_id=4711")], ""),
        ('order.ship-to="Ann Lee"', [("arg", "order.ship-to=Ann Lee")], ""),
        ('tag:"two words" x', [("tag", "two words")], "x"),
        ('"task:charge" "a=b"', [], "task:charge a=b"),
        ("https://host/?a=b", [], "https://host/?a=b"),
        ("a==b", [], "a==b"),
        ("task:", [], "task:"),
        ("order_id=", [], "order_id="),
        ("nothing:here", [], "nothing:here"),
        ('open "quote', [], "open quote"),
        ('""', [], ""),
    ],
)
def test_what_was_typed(line, pairs, text):
    assert read_line(line) == (pairs, text)


@pytest.fixture
def orders(store):
    store.letters.save(
        [
            letter("4711aaaa-1", attempt(minutes=50), kwargs={"order_id": 4711}),
            letter("0d3fffff-2", attempt(minutes=40), task="mail.send", message="too slow"),
            letter("0d3fffff-3", attempt(minutes=30), exception_type="shop.CardExpired"),
        ]
    )


def meant(visitor, line, **others):
    """The address that the box leads to, and its filters."""
    answer = visitor.get(f"{LETTERS}?{urlencode({**others, 'q': line})}")
    assert answer.status == 302, answer.text
    address = urlsplit(answer.headers["Location"])
    return address.path, parse_qsl(address.query)


@pytest.mark.parametrize(
    ("line", "pairs"),
    [
        ("4711", [("value", "4711")]),
        ("send", [("task", "send")]),
        ("shop.CardExpired", [("exception", "shop.CardExpired")]),
        ("too slow", [("search", "too slow")]),
        ("471", [("search", "471")]),
        ("task:send too slow", [("task", "send"), ("search", "too slow")]),
        ("order_id=4711", [("arg", "order_id=4711")]),
        ("&value=x#", [("search", "&value=x#")]),
    ],
)
def test_a_text_means_what_the_letters_have(ann, orders, line, pairs):
    assert meant(ann, line) == (LETTERS, pairs)


def test_an_id_opens_its_letter(ann, orders):
    for line in ("0d3fffff-2", "4711aaaa"):
        path, pairs = meant(ann, line)
        assert (path.startswith(f"{LETTERS}/{line}"), pairs) == (True, [])
    # Two letters begin with this.
    assert meant(ann, "0d3fffff") == (LETTERS, [("search", "0d3fffff")])


def test_the_other_filters_of_the_form_stay(ann, orders):
    assert meant(ann, "4711", state="dead", task="") == (
        LETTERS,
        [("state", "dead"), ("value", "4711")],
    )


def test_an_empty_box_is_ignored(ann, orders):
    assert ann.get(f"{LETTERS}?q=+&task=send").status == 200


def test_a_wrong_value_in_the_box_is_explained(ann, orders):
    path, pairs = meant(ann, "since:tomorrowish")
    answer = ann.get(f"{path}?{urlencode(pairs)}")
    assert (answer.status, "tomorrowish" in answer.text) == (400, True)


def test_a_value_can_be_searched_as_a_text_instead(ann, store, orders):
    store.letters.save([letter("inside", attempt(minutes=20), message="lost ab-4711-cd")])
    page = ann.get(f"{LETTERS}?value=4711&state=dead")
    [(link, _)] = page.find("a", id="dlq-as-text")
    assert link["href"] == f"{LETTERS}?state=dead&search=4711"
    assert [found["value"] for found, _ in ann.get(link["href"]).find("input", name="id")] == [
        "4711aaaa-1", "inside",
    ]  # fmt: skip
    for query in ("value=1&value=2", "value=4711&search=x", "task=send"):
        assert ann.get(f"{LETTERS}?{query}").find("a", id="dlq-as-text") == []


class TestLettersFromFurtherBack:
    @pytest.fixture(autouse=True)
    def old_one(self, store, monkeypatch):
        monkeypatch.setattr(pages, "STEP", 2)
        monkeypatch.setattr(letters, "SEARCH_PATIENCE_S", 0)
        store.letters.save([letter(f"new {n}", attempt(minutes=50 + n)) for n in range(4)])
        theirs = {"message": "declined", "fingerprint": "c" * 16}
        store.letters.save([letter("old", attempt(minutes=5), **theirs)])

    def is_searching(self, page):
        [(found, _)] = page.find("div", id="dlq-results")
        return "data-searching" in found

    def test_are_shown_apart(self, ann):
        page = ann.get(f"{LETTERS}?search=declined")
        assert [found["value"] for found, _ in page.find("input", name="id")] == ["old"]
        assert "1 letter on this page" in page.text
        assert len(page.find("tr", id="dlq-further-back")) == 1
        assert "Searched back to" in page.text
        # A person decides whether to continue.
        assert self.is_searching(page) is False
        assert page.find("a", rel="next")

    def test_are_told_by_rest(self, ann, monkeypatch):
        monkeypatch.setattr("celery_dlq.flower.resources.letters.API_PATIENCE_S", 0)
        answer = json.loads(ann.get("/api/dead-letters?search=declined").body)
        assert (answer["letters"], [one["task_id"] for one in answer["further"]]) == ([], ["old"])
        answer = json.loads(ann.get("/api/dead-letters?task=charge").body)
        assert (answer["letters"][-1]["task_id"], answer["further"]) == ("old", [])

    def test_nothing_is_shown_if_none_are_known(self, ann):
        page = ann.get(f"{LETTERS}?search=refunded")
        assert self.is_searching(page) is True
        assert page.find("tr", id="dlq-further-back") == []
