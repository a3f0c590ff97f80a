"""The page of a letter, and its buttons."""

import json
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import update
from support.factories import T0, attempt, bomb, envelope, letter, parking, unsent

from celery_dlq import Discard, Escalate, Ticket
from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.base.sealing import Keyring
from celery_dlq.model.group import Annotate
from celery_dlq.model.letter import Explanation, Outcome
from celery_dlq.model.operation import OperationState
from celery_dlq.model.states import (
    CLOSED_STATES,
    DELETABLE_STATES,
    Reason,
    State,
    Verdict,
)
from celery_dlq.store.base import Filter
from celery_dlq.store.database import tables

TRACEBACK = """Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/celery/app/trace.py", line 477, in trace_task
    R = retval = fun(*args, **kwargs)
                 ^^^^^^^^^^^^^^^^^^^^
  File "/srv/shop/tasks.py", line 9, in charge
    pay(order_id)
  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode
ValueError: bad currency
second line of it
"""


def page_of(visitor, task_id):
    page = visitor.get(f"/dead-letters/letters/{task_id}")
    assert page.status == 200, page.text
    return page


def press(visitor, task_id, act, **more):
    """Send the form of a button."""
    action = f"/dead-letters/letters/{task_id}/{act}"
    form = page_of(visitor, task_id).form(action)
    return visitor.post(action, {**dict(form), **more})


def state_of(store, task_id):
    return store.letters.get(task_id).state


def test_it_says_why_it_died(ann, store):
    why = Explanation(
        verdict=Verdict.TRANSIENT, rule="http.status", evidence="status=503", path="A <- B"
    )
    store.letters.save([letter("whole", explanation=why, reason=Reason.EXHAUSTED)])
    text = page_of(ann, "whole").text
    for said in ("exhausted: its attempts or its retry window were used up", "transient",
                 "http.status", "status=503", "A <- B", "bad currency", "shop.charge"):  # fmt: skip
        assert said in text


def test_attempts_are_a_timeline(ann):
    [(_, text)] = page_of(ann, "0d3f1111-aaaa").find("section", id="dlq-attempts")
    first, second = (
        text.split("2026-11-21 12:00:00 UTC")[1],
        text.split("2026-11-21 12:10:00 UTC")[1],
    )
    assert "then waited 0.4s" in first.partition("12:10:00")[0]
    assert "then waited" not in second


def test_attempts_are_numbered_through_redrives(ann, store):
    runs = attempt(1), attempt(2, minutes=1), attempt(1, redrive=1, minutes=30)
    store.letters.save([letter("again", *runs, redrive_count=1)])
    said = [" ".join(text.split()) for _, text in page_of(ann, "again").find("strong")]
    assert [text for text in said if text[:1].isdigit()] == ["1", "2", "3 in redrive 1"]


def test_arguments_are_redacted_copies_and_the_body_is_not_shown(ann, store):
    secret = envelope("s", body=b'[[], {"token": "s3cret"}, {}]',
                      headers={"argsrepr": "s3cret", "kwargsrepr": "s3cret", "task": "t"})  # fmt: skip
    store.letters.save([letter("s", args=[], kwargs={"token": "[redacted]"}, envelope=secret)])
    page = page_of(ann, "s")
    assert "s3cret" not in page.body
    assert "[redacted]" in page.body


def test_without_the_key_it_says_why_there_are_no_contents(ann, store):
    store.transactions.ring = Keyring({"new": b"n" * 32})
    store.letters.save([letter("e1", attempt(message="4929-1111"), args=["4929-1111"])])
    store.transactions.ring = None
    pages = "/dead-letters/letters/e1", "/dead-letters/letters", "/api/dead-letters/letters/e1"
    for page in map(ann.get, pages):
        assert "4929-1111" not in page.body
        assert "set dlq_encryption_keys here" in page.body
    assert "It was called without arguments" not in page_of(ann, "e1").text


def test_a_body_that_is_not_text_is_named(ann, store):
    store.letters.save(
        [letter("s", args=None, kwargs=None, envelope=envelope("s", body=b"\x80\x04N."))]
    )
    page = page_of(ann, "s").text
    assert "4 bytes that are not text" in page
    assert "80 04 4e 2e" not in page


def test_a_body_that_is_too_large_to_unpack_is_reported_as_unreadable(ann, store):
    store.letters.save([bomb(300_000_000, "bomb")])
    begun = time.process_time()
    said = "its body unpacks to more than 8 MiB, so it was not opened"
    assert said in page_of(ann, "bomb").text
    record = json.loads(ann.get("/api/dead-letters/letters/bomb").body)
    assert (record["errbacks"], record["body_unread"]) == ([], said)
    edit = ann.get("/dead-letters/letters/bomb/edit")
    assert edit.status >= 400
    assert "unpacks to more than 8 MiB" in edit.text
    assert time.process_time() - begun < 10.0


def test_arguments_have_the_names_of_the_tasks_parameters(ann, store):
    store.letters.save([letter("s", args=[17, "EUX", "more"], kwargs={"note": {"a": [1]}})])
    [(_, text)] = page_of(ann, "s").find("section", id="dlq-contents")
    said = " ".join(text.split())
    assert 'order_id17currency"EUX"args[2]"more"note{ "a": [ 1 ] }' in said


def test_arguments_of_a_task_that_flower_does_not_have_keep_their_places(ann, store):
    store.letters.save([letter("s", task="unknown", args=[17], kwargs={})])
    assert "args[0]17" in page_of(ann, "s").find("section", id="dlq-contents")[0][1]
    store.letters.save([letter("none", args=[], kwargs={}), letter("odd", args="[1, 2", kwargs={})])
    assert "called without arguments" in page_of(ann, "none").text
    assert 'args"[1, 2"' in page_of(ann, "odd").find("section", id="dlq-contents")[0][1]


def test_the_traceback_comes_before_the_rule(ann, store):
    store.letters.save([letter("s", traceback=TRACEBACK)])
    body = page_of(ann, "s").body
    assert body.index("dlq-traceback") < body.index("dlq-attempts") < body.index("dlq-judged")
    failed = page_of(ann, "s").find("li", class_="dlq-event-failure")
    assert "bad currency" in failed[0][1]


def test_it_links_to_its_trace(ann, store, site_of):
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    headers = {"id": "traced", "traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
    hostile = {"id": "hostile", "traceparent": f'00-{trace_id}-b7ad6b7169203331-01"><script>'}
    store.letters.save(
        [letter(one["id"], envelope=envelope(headers=one)) for one in (headers, hostile)]
    )
    assert page_of(ann, "traced").find("a", id="dlq-trace") == []
    assert trace_id in page_of(ann, "traced").find("section", id="dlq-message")[0][1]
    site, url = site_of(ann), "https://jaeger.example/trace/{trace_id}?a=1&b=2"
    site.settings = replace(site.settings, trace_url=url)
    [(link, _)] = page_of(ann, "traced").find("a", id="dlq-trace")
    assert link["href"] == f"https://jaeger.example/trace/{trace_id}?a=1&b=2"
    assert page_of(ann, "hostile").find("a", id="dlq-trace") == []
    shown = json.loads(ann.get("/api/dead-letters/letters/traced").body)
    assert (shown["trace_id"], shown["trace_url"]) == (trace_id, link["href"])


def test_the_last_lines_of_the_log_follow_the_traceback(ann, store):
    log = "INFO order 17\nWARNING <script>alert(1)</script>\u202e token=abc-s3cret"
    store.letters.save([letter("s", traceback=TRACEBACK, log=log)])
    page = page_of(ann, "s")
    [(_, text)] = page.find("div", id="dlq-log")
    assert "INFO order 17\nWARNING <script>alert(1)</script>\\u202e" in text
    assert "s3cret" not in page.body
    assert page.body.index("dlq-traceback") < page.body.index("dlq-log")
    assert page_of(ann, "77e1").find("div", id="dlq-log") == []


def test_its_form_has_one_field_for_the_reason(ann):
    page = page_of(ann, "77e1")
    assert len(page.find("input", name="why")) == 1
    [(redrive, _)], [(discard, _)] = (
        page.find("button", id=f"dlq-{act}") for act in ("redrive", "discard")
    )
    actions = [found["formaction"].rpartition("/")[2] for found in (redrive, discard)]
    assert actions == ["redrive", "discard"]
    assert "btn-outline-secondary" in discard["class"]
    assert "btn-outline-danger" in page.find("a", id="dlq-delete")[0][0]["class"]


def test_frames_of_the_users_own_code_are_marked(ann, store):
    store.letters.save([letter("s", traceback=TRACEBACK)])
    page = page_of(ann, "s")
    own = [text for _, text in page.find("span", class_="dlq-frame dlq-frame-app")]
    assert [text.split('"')[1] for text in own] == ["/srv/shop/tasks.py"]
    assert "pay(order_id)" in own[0]
    assert len(page.find("span", class_="dlq-frame dlq-frame-library")) == 2
    assert page.find("span", class_="dlq-frame dlq-frame-text")[-1][1].endswith("second line of it")


def test_a_prefix_of_an_id_redirects_to_the_letter(ann):
    assert ann.get("/dead-letters/letters/77").headers["Location"] == "/dead-letters/letters/77e1"


def test_unknown_and_ambiguous_ids_are_reported(ann):
    unknown = ann.get("/dead-letters/letters/nowhere")
    assert (unknown.status, "No dead letter has an id" in unknown.text) == (404, True)
    several = ann.get("/dead-letters/letters/0d3f")
    assert (several.status, "0d3f1111-aaaa, 0d3f2222-bbbb" in several.text) == (400, True)


def test_flowers_own_page_is_linked_when_flower_knows_the_task(ann, three):
    link = {"href": "/task/77e1"}
    assert page_of(ann, "77e1").find("a", **link) == []
    ann.flower.events.state.tasks["77e1"] = object()
    assert page_of(ann, "77e1").find("a", **link)


def test_flowers_task_page_gets_its_letter(ann):
    known = json.loads(ann.get("/dead-letters/of-task/77e1").body)
    assert known == {"state": "dead", "address": "/dead-letters/letters/77e1"}
    assert json.loads(ann.get("/dead-letters/of-task/other").body) == {"state": None}


def test_decisions_about_its_group_are_shown(ann, store):
    fingerprint = store.letters.get("77e1").fingerprint
    store.groups.triage(
        fingerprint, Annotate(note="look at <b>the gateway</b>\nfirst"), who="bob", now=T0
    )
    [(_, text)] = page_of(ann, "77e1").find("dl", id="dlq-triage")
    assert "look at <b>the gateway</b>\nfirst" in text


def test_redrive_leaves_an_operation_of_one_letter_to_a_worker(ann, store):
    answer = press(ann, "77e1", "redrive")
    assert answer.status == 303
    [operation] = store.operations.find()
    assert (operation.state, operation.detached) == (OperationState.PLANNED, True)
    assert (operation.who, operation.counts.planned) == ("ann (flower)", 1)
    assert operation.wanted.ids == ("77e1",)
    page = ann.get(answer.headers["Location"])
    assert page.find("a", href=f"/dead-letters/operations/{operation.id}")
    [row] = store.audit.find().rows
    assert (row.act, row.who) == ("redrive", "ann (flower)")


def test_a_letter_redriven_often_is_sent_only_with_again(ann, store):
    store.letters.save([letter("often", redrive_count=3)])
    assert "again, after 3 redrives" in page_of(ann, "often").text
    press(ann, "often", "redrive", again="1")
    [operation] = store.operations.find()
    assert operation.orders.checking.max_redrives is None


def test_discard_and_undiscard_are_audited(ann, store):
    assert press(ann, "77e1", "discard", why="test data").status == 303
    found = store.letters.get("77e1")
    assert (found.state, found.closed_by, found.closed_reason) == (
        State.DISCARDED, "ann (flower)", "test data",
    )  # fmt: skip
    page = page_of(ann, "77e1")
    [(_, history)] = page.find("section", id="dlq-history")
    assert "test data" in history
    assert press(ann, "77e1", "undiscard").status == 303
    assert state_of(store, "77e1") is State.DEAD
    assert [row.act for row in store.audit.find().rows] == ["undiscard", "discard"]


def test_the_history_says_who_redrove_it(ann, store, operation):
    store.operations.create(operation("0a", who="bob", wanted=Filter(ids=("77e1",))))
    begun = store.operations.move("0a", OperationState.RUNNING, who="bob", now=T0)
    until = T0 + timedelta(days=9)
    store.claims.take(begun, token="t", lease_until=until, limit=3, now=T0)
    store.claims.confirm("0a", "t", {"77e1": ""}, now=T0)
    [(_, history)] = page_of(ann, "77e1").find("section", id="dlq-history")
    assert "bob redrove it (redrive 1) sent operation 0a" in " ".join(history.split())


def test_the_history_names_each_act_once(ann, app):
    press(ann, "77e1", "discard", why="first time")
    press(ann, "77e1", "undiscard")
    DeadLetterQueue.of(app).edit("77e1", who="bob", args=[18])
    press(ann, "77e1", "discard", why="second time")
    [(_, history)] = page_of(ann, "77e1").find("section", id="dlq-history")
    said = ("first time", "second time", "reopened 1 letter", "changed the message")
    assert [history.count(text) for text in said] == [1] * 4
    assert history.count("discarded 1 letter") == 2


def test_a_bulk_discard_is_in_the_history_of_a_letter(ann, store):
    store.closing.discard(Filter(), who="bob", why="spring cleaning", now=T0)
    [(_, history)] = page_of(ann, "77e1").find("section", id="dlq-history")
    assert history.count("spring cleaning") == 1


def test_a_discard_without_a_reason_changes_nothing(ann, store):
    answer = press(ann, "77e1", "discard", why="  ")
    assert answer.status == 400
    [(field, _)] = answer.find("input", name="why")
    [(alert, said)] = answer.find("p", role="alert")
    assert (field["aria-describedby"], "needs a reason" in said) == (alert["id"], True)
    assert state_of(store, "77e1") is State.DEAD
    # The page has a new form.
    action = "/dead-letters/letters/77e1/discard"
    assert ann.post(action, {**dict(answer.form(action)), "why": "test data"}).status == 303
    assert ann.get(action).headers["Location"] == "/dead-letters/letters/77e1"


def test_a_message_that_the_broker_did_not_take_says_so(ann, store):
    store.parked.park([unsent("web")], now=T0)
    page = page_of(ann, "web")
    assert "Why it was not sent" in page.text
    assert "from its sender; a worker sends it as soon as the broker takes it" in page.text
    assert "next attempt" not in page.text
    sent = press(ann, "web", "unpark")
    assert "A worker will send it within seconds." in ann.get(sent.headers["Location"]).text


def test_a_parked_retry_is_released(ann, app, store):
    place = DeadLetterQueue.of(app).hold.place
    store.parked.park([parking("later", 3600, place)], now=T0)
    page = page_of(ann, "later")
    assert "Why it is parked" in page.text
    assert press(ann, "later", "unpark").status == 303
    assert store.parked.next_due(place) <= 0


def test_only_acts_allowed_in_its_state_are_offered(ann, store, three):
    store.closing.discard(Filter(ids=("77e1",)), who="bob", why="x", now=T0)
    offered = {found["action"].rpartition("/")[2] for found, _ in page_of(ann, "77e1").find("form")}
    assert offered == {"undiscard"}


@pytest.mark.parametrize("state", State)
def test_delete_leads_to_a_confirmation(ann, store, state):
    with store.database.engine.begin() as connection:
        one = tables.letter.c.task_id == "77e1"
        connection.execute(update(tables.letter).where(one).values(state=state.value))
    links = [found for found, _ in page_of(ann, "77e1").find("a", id="dlq-delete")]
    assert bool(links) is (state in DELETABLE_STATES)
    for link in links:
        confirmation = ann.get(link["href"])
        assert (confirmation.status, "Delete 1 letter" in confirmation.text) == (200, True)
        assert bool(confirmation.find("input", name="lose")) is (state not in CLOSED_STATES)


@pytest.mark.parametrize("archive", [None, "file:///srv/dead letters"])
def test_a_deleted_letter_says_by_whom_and_where_it_may_be(ann, app, store, archive):
    app.conf.dlq_archive_url = archive
    queue = DeadLetterQueue.of(app)
    queue.delete(Filter(ids=("77e1",)), who="bob", why="<b>test</b> data", is_open=True)
    page = ann.get("/dead-letters/letters/77e1")
    assert page.status == 404
    assert "The letter '77e1' was deleted by bob on 2026-11-21T13:00:00+00:00" in page.text
    assert "<b>test</b> data" in page.text
    assert ("`celery -A <app> dlq archive show 77e1`" in page.text) is (archive is not None)


@pytest.fixture
def codes_hidden(app):
    """The app hides gift codes, too."""
    app.conf.dlq_redact = ("giftcode",)


def test_the_reason_of_a_deletion_is_shown_without_secrets(codes_hidden, app, ann):
    why = "asked for giftcode=AB12CD34"
    DeadLetterQueue.of(app).delete(Filter(ids=("77e1",)), who="bob", why=why, is_open=True)
    for path in ("/dead-letters/letters/77e1", "/api/dead-letters/letters/77e1"):
        answer = ann.get(path)
        assert (answer.status, "was deleted by bob" in answer.body) == (404, True)
        assert "giftcode=[redacted]" in answer.body
        assert "AB12CD34" not in answer.body
    edit = ann.get("/dead-letters/letters/77e1/edit")
    assert (edit.status, "AB12CD34" in edit.body) == (404, False)


def test_the_command_for_the_archive_quotes_the_id(ann, app):
    app.conf.dlq_archive_url = "file:///srv/dead-letters"
    page = ann.get("/dead-letters/letters/x%3B%20rm%20-r%20*")
    assert page.status == 404
    assert "archive show 'x; rm -r *'`" in page.text


def test_an_act_that_the_state_no_longer_allows_is_refused(ann, store):
    action = "/dead-letters/letters/77e1/discard"
    form = dict(page_of(ann, "77e1").form(action))
    store.closing.discard(Filter(ids=("77e1",)), who="bob", why="before", now=T0)
    answer = ann.post(action, {**form, "why": "after"})
    assert answer.status == 409
    assert store.letters.get("77e1").closed_reason == "before"


def test_a_form_that_is_sent_twice_is_accepted_once(ann, store):
    action = "/dead-letters/letters/77e1/redrive"
    form = page_of(ann, "77e1").form(action)
    assert ann.post(action, form).status == 303
    again = ann.post(action, form)
    assert (again.status, "was already sent" in again.text) == (409, True)
    assert len(store.operations.find()) == 1


@pytest.mark.parametrize(
    ("mark", "why"),
    [
        ("", "none"),
        ("1.2.3", "made up"),
        ("ü.ü.ü", "no ASCII"),
        ("x", "no parts"),
    ],
)
def test_a_forged_mark_is_refused(ann, store, mark, why):
    action = "/dead-letters/letters/77e1/redrive"
    form = {**dict(page_of(ann, "77e1").form(action)), "mark": mark}
    assert ann.post(action, form).status == 409
    assert store.operations.find() == []


def test_the_mark_of_another_letter_is_refused(ann, store, three):
    other = dict(page_of(ann, three[0]).form(f"/dead-letters/letters/{three[0]}/redrive"))
    assert ann.post("/dead-letters/letters/77e1/redrive", other).status == 409
    assert store.operations.find() == []


def test_a_held_letter_says_by_which_automatic_redrive_and_why(shop, ann, hold):
    hold("77e1", "it failed <i>differently</i>")
    page = page_of(ann, "77e1")
    [(_, text)] = page.find("section", id="dlq-held")
    for said in (
        "Held: only a person redrives it", "charges", "it failed <i>differently</i>",
        "2026-11-21 13:00:00 UTC (now)",
    ):  # fmt: skip
        assert said in text
    assert page.find("a", href="/dead-letters/automations/charges")
    assert page_of(ann, "0d3f1111-aaaa").find("section", id="dlq-held") == []


def test_a_letter_held_by_one_that_was_removed_links_to_no_page(ann, hold):
    hold("77e1", "it failed differently")
    page = page_of(ann, "77e1")
    assert "charges" in page.find("section", id="dlq-held")[0][1]
    assert page.find("a", href="/dead-letters/automations/charges") == []


class TestHandlers:
    def test_a_ticket_of_its_group_is_a_link(self, ann, handled):
        handled("77e1", Ticket("https://tickets.example.com/7?a=1&b='<"))
        page = page_of(ann, "77e1")
        [(found, text)] = page.find("a", rel="noopener noreferrer")
        assert found["href"] == text == "https://tickets.example.com/7?a=1&b='<"
        [(_, tickets)] = page.find("section", id="dlq-tickets")
        assert "by auto:ticketing" in tickets

    @pytest.mark.parametrize(
        "url", ["javascript:alert(1)", " https://x", "//x", "data:text/html,x"]
    )
    def test_an_address_of_another_kind_is_no_link(self, ann, store, handled, url):
        # As if another program had written it.
        handled("77e1", Ticket("https://tickets.example.com/7"))
        with store.database.engine.begin() as connection:
            connection.execute(update(tables.ticket).values(url=url))
        page = page_of(ann, "77e1")
        assert url.strip() in page.find("section", id="dlq-tickets")[0][1]
        assert page.find("a", rel="noopener noreferrer") == []
        assert [
            found for found, _ in page.find("a") if found.get("href", "").strip() == url.strip()
        ] == []

    def test_an_escalation_says_to_whom_why_and_by_whom(self, ann, handled):
        handled("77e1", Escalate("payments", "the bank is <b>away</b>"))
        [(_, text)] = page_of(ann, "77e1").find("section", id="dlq-tickets")
        said = " ".join(text.split())
        assert "escalation: payments: the bank is <b>away</b> by auto:ticketing, " in said

    def test_what_a_handler_did_is_in_the_history_once(self, ann, store, handled):
        handled("77e1", Discard("no such customer"))
        [(_, text)] = page_of(ann, "77e1").find("section", id="dlq-history")
        assert "auto:ticketing discard" in text
        assert "done" in text
        assert "reason=no such customer" in text
        assert text.count("no such customer") == 1
        assert state_of(store, "77e1") is State.DISCARDED

    def test_a_letter_without_any(self, ann):
        page = page_of(ann, "77e1")
        assert page.find("section", id="dlq-tickets") == []
        assert "handler" not in page.text


def test_a_letter_of_a_canvas_leads_to_the_others(ann, store):
    store.letters.save(
        [letter("root"), letter("child", root_id="root"), letter("alone", root_id=None)]
    )
    [(link, _)] = ann.get("/dead-letters/letters/child").find("a", id="dlq-canvas")
    others = ann.get(link["href"]).find("input", name="id")
    assert sorted(found["value"] for found, _ in others) == ["child", "root"]
    for name in ("root", "alone"):
        assert ann.get(f"/dead-letters/letters/{name}").find("a", id="dlq-canvas") == []


class TestLive:
    """The page of a letter follows its redrive."""

    @pytest.fixture
    def redriven(self, ann, store, three):
        """A letter whose redrive was asked for on its page."""
        answer = press(ann, three[0], "redrive")
        return answer.headers["Location"]

    def look(self, visitor, address):
        page = visitor.get(address)
        [(live, _)] = page.find("div", id="dlq-live")
        return "data-refresh" in live, page.find("p", id="dlq-done")[0][1].split("  ")[0].strip()

    def take(self, store, task_id):
        (planned,) = store.operations.find(limit=1)
        begun = store.operations.move(planned.id, OperationState.RUNNING, who="w", now=T0)
        until = T0 + timedelta(days=9)
        store.claims.take(begun, token="t", lease_until=until, limit=9, now=T0)
        return planned.id

    def test_until_a_worker_takes_it(self, ann, redriven):
        is_live, said = self.look(ann, redriven)
        assert is_live
        assert said.startswith("A worker will send the letter within seconds.")

    def test_until_its_outcome(self, ann, store, three, redriven):
        operation = self.take(store, three[0])
        assert self.look(ann, redriven)[0]
        store.claims.confirm(operation, "t", {three[0]: ""}, now=T0)
        is_live, said = self.look(ann, redriven)
        assert is_live
        assert said.startswith("It was sent. Its outcome will appear here.")
        ran = Outcome(task_id=three[0], redrive=1, succeeded_at=T0, worker="w")
        store.letters.record_outcomes([ran])
        is_live, said = self.look(ann, redriven)
        assert not is_live
        assert said.startswith("It was redriven, and succeeded.")

    def test_it_stops_if_it_was_not_sent(self, ann, store, three, redriven):
        operation = self.take(store, three[0])
        store.claims.skip(operation, "t", {three[0]: "no queue"}, now=T0)
        is_live, said = self.look(ann, redriven)
        assert not is_live
        assert said.startswith("It was not sent.")
        assert "no queue" in ann.get(redriven).text

    def test_it_stops_if_the_redrive_was_cancelled(self, ann, store, redriven):
        (planned,) = store.operations.find(limit=1)
        store.operations.move(planned.id, OperationState.CANCELLED, who="bob", now=T0)
        is_live, said = self.look(ann, redriven)
        assert not is_live
        assert said.startswith("It was not sent: the redrive has ended.")

    def test_a_letter_with_nothing_under_way_does_not_refresh(self, ann, three):
        [(live, _)] = page_of(ann, three[0]).find("div", id="dlq-live")
        assert "data-refresh" not in live
