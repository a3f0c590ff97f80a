"""Acts on many letters: the confirmation, and the act."""

import asyncio
import json

import pytest
from support.factories import T0, attempt, letter, unsent

from celery_dlq.flower.http.calls import NotYet
from celery_dlq.flower.http.site import Site
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter

REDRIVE, DISCARD = "/dead-letters/redrive", "/dead-letters/discard"
DELETE = "/dead-letters/delete"


def agree(visitor, action, query, **more):
    """Open the confirmation page, and send its form."""
    page = visitor.get(f"{action}?{query}")
    assert page.status == 200, page.text
    return visitor.post(action, filled(page, action, **more))


def filled(page, action, **more):
    """The form with this ``action``, filled with these values."""
    return [*(pair for pair in page.form(action) if pair[0] not in more), *more.items()]


def states(store, ids):
    return [store.letters.get(task_id).state for task_id in ids]


def test_the_page_says_how_many_and_which(ann):
    text = ann.get(f"{REDRIVE}?exception=ValueError").text
    assert "Redrive 2 letters" in text
    assert "2 of shop.charge" in text
    assert "0d3f2222" in text


def test_a_redrive_of_all_that_match_becomes_an_operation(ann, store):
    answer = agree(ann, REDRIVE, "exception=ValueError", number="1", rate="50/s", limit="1")
    [operation] = store.operations.find()
    assert answer.headers["Location"] == f"/dead-letters/operations/{operation.id}"
    assert (operation.detached, operation.who) == (True, "ann (flower)")
    assert operation.wanted.exception == "ValueError"
    assert (operation.orders.pacing.rate, operation.orders.pacing.limit) == (50.0, 1)


def test_a_limit_is_the_number_to_confirm(ann, store):
    refused = agree(ann, REDRIVE, "exception=ValueError", number="2", limit="1")
    assert "The number is 1 now, and you typed 2" in refused.text
    assert "Redrive 1 of 2 letters" in refused.text
    assert not store.operations.find()
    assert agree(ann, REDRIVE, "exception=ValueError", number="2", limit="9").status == 303


def test_selected_letters_are_taken_by_their_ids(ann, store, three):
    query = f"selected=1&id={three[0]}&id=77e1"
    assert agree(ann, DISCARD, query, number="2", why="test data").status == 303
    assert states(store, three) == [State.DISCARDED, State.DEAD, State.DISCARDED]
    [row] = store.audit.find().rows
    assert (row.act, row.who, row.count, row.why) == ("discard", "ann (flower)", 2, "test data")


def test_messages_that_were_not_sent_are_found_and_discarded_by_their_reason(ann, store):
    store.parked.park([unsent("web1"), unsent("web2")], now=T0)
    assert "web1" in ann.get("/dead-letters/letters?reason=unsent").text
    answer = ann.get("/api/dead-letters?reason=unsent")
    listed = json.loads(answer.body)["letters"]
    assert {one["task_id"] for one in listed} == {"web1", "web2"}
    page = ann.get(f"{DISCARD}?reason=unsent")
    assert "left alone" not in page.text
    assert agree(ann, DISCARD, "reason=unsent", number="2", why="cancelled").status == 303
    assert states(store, ["web1", "web2"]) == [State.DISCARDED] * 2


def test_an_empty_selection_is_refused(ann):
    answer = ann.get(f"{DISCARD}?selected=1")
    assert (answer.status, "No letter is selected" in answer.text) == (400, True)


@pytest.mark.parametrize("number", ["", "1", "3", "two", "²", "2.0", "-2"])
def test_another_number_changes_nothing(ann, store, three, number):
    for action in (REDRIVE, DISCARD):
        answer = agree(ann, action, "exception=ValueError", number=number, why="x")
        assert answer.status == 409
        assert answer.find("p", role="alert")
    assert store.operations.find() == []
    assert states(store, three) == [State.DEAD] * 3


def test_the_number_may_be_written_with_a_comma(ann, store):
    store.letters.save([letter(f"x{n}", attempt(minutes=-n)) for n in range(1_000)])
    assert agree(ann, DISCARD, "task=charge", number="1,002", why="x").status == 303


def test_letters_that_fail_later_are_not_included(ann, store, three):
    page = ann.get(f"{DISCARD}?task=charge")
    store.letters.save([letter("newer", attempt(minutes=70))])
    form = filled(page, DISCARD, number="2", why="x")
    assert ann.post(DISCARD, form).status == 303
    assert states(store, ["newer"]) == [State.DEAD]


def test_letters_that_are_gone_change_the_number(ann, store, three):
    page = ann.get(f"{DISCARD}?task=charge")
    agree(ann, DISCARD, f"id={three[0]}", why="x")
    form = filled(page, DISCARD, number="2", why="x")
    answer = ann.post(DISCARD, form)
    assert (answer.status, "The number is 1 now" in answer.text) == (409, True)


def test_a_form_is_accepted_once(ann, store):
    page = ann.get(f"{REDRIVE}?task=charge")
    form = filled(page, REDRIVE, number="2")
    assert ann.post(REDRIVE, form).status == 303
    assert ann.post(REDRIVE, form).status == 409
    assert len(store.operations.find()) == 1


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ({"rate": "fast"}, "is not a rate"),
        ({"canary": "0"}, "above zero"),
        ({"canary": "-1"}, "above zero"),
        ({"limit": "9" * 30}, "above zero"),
        ({"canary": "3"}, "more than 2 letters"),
    ],
)
def test_invalid_orders_change_nothing(ann, store, order, said):
    answer = agree(ann, REDRIVE, "task=charge", number="2", **order)
    assert answer.status == 400
    assert said in answer.text
    assert store.operations.find() == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("state=resolved", "only dead"),
        ("tsk=charge", "did you mean 'task'"),
        ("id=", "An id is empty"),
    ],
)
def test_an_invalid_filter_finds_nothing(ann, query, said):
    for action in (REDRIVE, DISCARD):
        answer = ann.get(f"{action}?{query}")
        assert (answer.status, said in answer.text) == (400, True)


def test_an_act_without_letters_offers_no_form(ann):
    page = ann.get(f"{DISCARD}?task=other")
    assert "Discard 0 letters" in page.text
    assert page.find("form") == []


def test_a_slow_discard_continues(ann, store, three, monkeypatch):
    page = ann.get(f"{DISCARD}?task=charge")

    async def act(self, work):
        await asyncio.sleep(0)
        raise NotYet

    monkeypatch.setattr(Site, "act", act)
    answer = ann.post(DISCARD, filled(page, DISCARD, number="2", why="x"))
    assert (answer.status, "It continues" in answer.text) == (202, True)


@pytest.fixture
def closed(ann, store, three):
    """The two letters of ``shop.charge``, discarded; the third one is dead."""
    store.closing.discard(Filter(task="charge"), who="bob", why="x", now=T0)
    return three[:2]


class TestDelete:
    def test_closed_letters_are_deleted_for_ever(self, ann, store, closed):
        page = ann.get(f"{DELETE}?exception=ValueError")
        assert "Delete 2 letters" in page.text
        [(_, said)] = page.find("p", id="dlq-for-ever")
        assert "cannot be undone" in said
        cells = store.monitoring.measures().cells
        assert sum(cell.arrived for cell in cells) == 3
        answer = ann.post(DELETE, filled(page, DELETE, number="2", why="test data"))
        assert answer.headers["Location"] == "/dead-letters/letters?deleted=2"
        assert [store.letters.get(task_id) for task_id in closed] == [None, None]
        act = store.audit.find().rows[0]
        assert (act.act, act.who, act.count, act.why) == ("delete", "ann (flower)", 2, "test data")
        assert store.monitoring.measures().cells == cells
        assert "2 letters deleted." in ann.get(answer.headers["Location"]).text

    def test_they_need_no_reason(self, ann, store, closed):
        assert agree(ann, DELETE, f"id={closed[0]}&state=discarded").status == 303
        assert store.letters.get(closed[0]) is None

    @pytest.mark.parametrize("number", ["", "1", "3", "two"])
    def test_another_number_deletes_nothing(self, ann, store, closed, number):
        assert agree(ann, DELETE, "task=charge", number=number).status == 409
        assert states(store, closed) == [State.DISCARDED] * 2

    @pytest.mark.parametrize("act", ["redrive", "discard", "delete"])
    def test_a_page_without_letters_leads_back_to_the_list(self, ann, store, act):
        store.letters.save([letter("waits", task="ship")])
        page = ann.get(f"/dead-letters/{act}?task=ship&until=2020-01-01")
        assert f"Nothing to {act}." in page.text
        [back] = [found["href"] for found, text in page.find("a") if "that match" in text]
        found = ann.get(back)
        assert found.status == 200
        assert "waits" not in found.text
        assert "task: ship" in found.text

    def test_open_letters_are_left_alone_unless_they_are_asked_for(self, ann, store, closed):
        page = ann.get(f"{DELETE}?selected=1&id={closed[0]}&id=77e1")
        assert "Delete 1 letter" in page.text
        assert "This filter also matches 1 more letter. Letters in another state" in page.text
        [instead] = [
            found["href"]
            for found, text in page.find("a")
            if text == "Delete the open letters instead"
        ]
        assert ann.post(DELETE, page.form(DELETE)).status == 303
        assert states(store, ["77e1"]) == [State.DEAD]
        assert agree(ann, DELETE, instead.partition("?")[2], lose="1", why="x").status == 303
        assert store.letters.get("77e1") is None

    @pytest.mark.parametrize("query", ["id=77e1&open=1", "id=77e1&state=dead", "task=mail&open=1"])
    def test_open_letters_need_a_choice_and_a_reason(self, ann, store, closed, query):
        page = ann.get(f"{DELETE}?{query}")
        [(_, said)] = page.find("p", id="dlq-for-ever")
        assert "their messages are lost" in said
        refused = {
            "Letters that are dead are open": {"why": "test data"},
            "needs a reason": {"lose": "1", "why": " "},
        }
        for problem, given in refused.items():
            answer = ann.post(DELETE, filled(page, DELETE, **given))
            assert answer.status == 400
            [(_, alert)] = answer.find("p", role="alert")
            assert problem in alert
            page = answer
        assert states(store, ["77e1"]) == [State.DEAD]
        answer = ann.post(DELETE, filled(page, DELETE, lose="1", why="test data"))
        assert answer.status == 303
        assert store.letters.get("77e1") is None
        assert states(store, closed) == [State.DISCARDED] * 2

    @pytest.mark.parametrize(
        ("query", "said"),
        [
            ("state=dead&state=resolved", "delete them apart from closed ones"),
            ("state=resolved&open=1", "delete them apart from open ones"),
            ("state=claimed", "claimed cannot be deleted"),
            ("state=parked&open=1", "parked cannot be deleted"),
            ("task=charge&open=yes", "open must be 1"),
            ("task=charge&lost=1", "did you mean"),
            ("selected=1", "No letter is selected"),
        ],
    )
    def test_an_invalid_filter_finds_nothing(self, ann, query, said):
        answer = ann.get(f"{DELETE}?{query}")
        assert (answer.status, said in answer.text) == (400, True)

    def test_other_acts_do_not_take_its_fields(self, ann):
        for action in (REDRIVE, DISCARD):
            assert ann.get(f"{action}?task=charge&open=1").status == 400

    def test_a_form_is_accepted_once(self, ann, store, closed):
        form = filled(ann.get(f"{DELETE}?task=charge"), DELETE, number="2")
        assert ann.post(DELETE, form).status == 303
        assert ann.post(DELETE, form).status == 409
        assert len(store.audit.find(act="delete").rows) == 1

    def test_letters_of_a_worker_whose_clock_is_ahead_are_included(self, ann, store):
        store.letters.save([letter("ahead", attempt(minutes=90))])
        store.closing.discard(Filter(ids=("ahead",)), who="bob", why="x", now=T0)
        assert agree(ann, DELETE, "id=ahead").status == 303
        assert store.letters.get("ahead") is None

    def test_a_slow_deletion_continues(self, ann, closed, monkeypatch):
        page = ann.get(f"{DELETE}?task=charge")

        async def act(self, work):
            await asyncio.sleep(0)
            raise NotYet

        monkeypatch.setattr(Site, "act", act)
        answer = ann.post(DELETE, filled(page, DELETE, number="2"))
        assert (answer.status, "The deletion has started" in answer.text) == (202, True)

    @pytest.mark.parametrize(
        ("query", "link", "label"),
        [
            ("", "?open=1", "Delete all that match"),
            ("?state=dead", "?state=dead&open=1", "Delete all that match"),
            ("?task=mail&state=", "?task=mail&open=1", "Delete all that match"),
            (
                "?task=charge&state=Discarded",
                "?task=charge&state=discarded",
                "Delete all that match",
            ),
            ("?state=discarded&state=dead", "?state=discarded", "Delete all closed that match"),
        ],
    )
    def test_the_list_offers_it_for_the_letters_that_it_shows(
        self, ann, closed, query, link, label
    ):
        page = ann.get(f"/dead-letters/letters{query}")
        assert [text for _, text in page.find("a", href=f"{DELETE}{link}")] == [label]
        [(button, _)] = page.find("button", formaction=DELETE)
        assert (button.get("name") == "open") is ("open=1" in link)
        assert ann.get(f"{DELETE}{link}").status == 200
