"""The REST API, and its OpenAPI description."""

import asyncio
import json
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml
from celery import Celery
from support.factories import T0, attempt, envelope, letter
from support.stores.losses import trouble

from celery_dlq.flower.http.calls import NotYet
from celery_dlq.flower.http.request import NAMES
from celery_dlq.flower.http.site import Site
from celery_dlq.flower.resources import letters
from celery_dlq.flower.routes import API
from celery_dlq.model.automation import AutoMode, AutoState
from celery_dlq.model.group import GroupStatus, Mark
from celery_dlq.model.handling import Escalate, HandlingState, Ticket, TicketKind
from celery_dlq.model.letter import Explanation
from celery_dlq.model.operation import OperationState, SendingState
from celery_dlq.model.request import RequestState
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.model.worker import ReportKind
from celery_dlq.store.base import Filter
from celery_dlq.store.database import clock
from celery_dlq.store.letters import pages

ROOT = Path(__file__).parents[4]
DESCRIPTION = yaml.safe_load((ROOT / "docs" / "reference" / "openapi.yaml").read_text())
SCHEMAS = DESCRIPTION["components"]["schemas"]

API_ROOT = "/api/dead-letters"


def read(visitor, path, status=200):
    answer = visitor.get(f"{API_ROOT}{path}")
    assert answer.status == status, answer.body
    assert answer.headers["Content-Type"].startswith("application/json")
    return json.loads(answer.body)


def send(visitor, path, body=None, **headers):
    """Send a request as a program, not as a browser."""
    sent = json.dumps(body) if body is not None else ""
    given = {"Content-Type": "application/json", **headers}
    answer = visitor.ask("POST", f"{API_ROOT}{path}", sent, given)
    return answer.status, json.loads(answer.body)


def ids(found):
    return [one["task_id"] for one in found["letters"]]


def test_letters_page_by_page(ann, three):
    first = read(ann, "?limit=2")
    assert ids(first) == ["77e1", "0d3f2222-bbbb"]
    second = read(ann, f"?limit=2&after={first['next']}")
    assert (ids(second), second["next"]) == (["0d3f1111-aaaa"], None)
    assert ids(read(ann, "?task=mail")) == ["77e1"]


def test_letters_by_the_fields_of_their_failure(ann, store, three):
    judged = Explanation(verdict=Verdict.TRANSIENT, rule="http.status")
    other = {"release": "2.0", "tags": ("mo&ney",), "root_id": "77e1", "explanation": judged}
    store.letters.save([letter("late", attempt(minutes=50), **other)])
    for query in ("release=2.0", "tag=mo%26ney", "verdict=transient", "rule=http."):
        assert ids(read(ann, f"?{query}")) == ["late"]
    assert ids(read(ann, "?root=77e1")) == ["late", "77e1"]
    chosen = {"tag": "mo&ney", "verdict": "transient", "rule": "http.status", "root": "77e1"}
    told = send(ann, "/discard", {**chosen, "number": 1, "why": "x"})
    assert told == (200, {"discarded": 1})
    assert ids(read(ann, "?release=2.0&state=discarded")) == ["late"]


def test_a_search_reports_an_incomplete_page(ann, three, monkeypatch):
    monkeypatch.setattr(pages, "STEP", 2)
    monkeypatch.setattr(letters, "API_PATIENCE_S", 0)
    first = read(ann, "?search=charge")
    assert (ids(first), first["searched_to"]) == (["0d3f2222-bbbb"], "2026-11-21T12:20:00+00:00")
    last = read(ann, f"?search=charge&after={first['next']}")
    assert (ids(last), last["next"], last["searched_to"]) == (["0d3f1111-aaaa"], None, None)


def test_a_letter_in_full_without_its_body(ann):
    found = read(ann, "/letters/77")
    assert (found["task_id"], found["kwargs"]) == ("77e1", {"currency": "EUX"})
    assert "body" not in found
    assert found["traceback"].startswith("Traceback")


def test_groups_and_stats(ann):
    assert [one["open_count"] for one in read(ann, "/groups")["groups"]] == [2, 1]
    assert [one["task"] for one in read(ann, "/groups?task=mail")["groups"]] == ["shop.mail"]
    assert read(ann, "/groups?status=ignored")["groups"] == []
    assert read(ann, "/stats")["depth"] == 3


def test_groups_are_merged_and_split(ann, three):
    mail = next(one for one in read(ann, "/groups")["groups"] if one["task"] == "shop.mail")
    status, told = send(ann, f"/groups/{mail['fingerprint']}/merge", {"into": "9c1e"})
    assert (status, told["fingerprint"], told["open_count"]) == (200, "9c1e0000deadbeef", 3)
    (merged,) = read(ann, "/groups/9c1e")["merged"]
    assert (merged["name"], merged["why"], merged["who"]) == (
        mail["fingerprint"], "merged", "ann (flower)"
    )  # fmt: skip
    for sent in ({"member": mail["fingerprint"]}, {}):
        status, told = send(ann, "/groups/9c1e/split", sent)
        assert status == (200 if sent else 400)
    assert [one["open_count"] for one in read(ann, "/groups")["groups"]] == [2, 1]


def test_what_is_kept_of_closed_letters(ann, round_of_retention):
    found = read(ann, "/retention")
    assert (found["retention"]["removed"], found["retention"]["letters"]) == (0, 1)
    assert found["archive"]["segments"] == 0


def test_what_is_known_of_killed_workers(ann, store, monkeypatch):
    monkeypatch.setattr(clock, "now", lambda _connection: store.now())
    store.recorder_reports.note(trouble(store.now()))
    found = read(ann, "/recorder")
    assert (found["lost_open"], found["lost_arrived_24h"]) == (0, 0)
    assert found["here"]["unrecovered"] == 0
    assert [one["kind"] for one in found["reports"]] == ["stuck", "waiting", "uncovered"]


def test_groups_page_by_page(ann):
    first = read(ann, "/groups?limit=1")
    assert [one["task"] for one in first["groups"]] == ["shop.charge"]
    second = read(ann, f"/groups?limit=1&after={quote(first['next'])}")
    assert [one["task"] for one in second["groups"]] == ["shop.mail"]
    assert second["next"] is None


class TestTriage:
    def test_decisions_are_stored_and_returned(self, ann, store):
        sent = {"until": "2d", "rate": "100/h", "count": 7}
        status, told = send(ann, "/groups/9c1e/ignore", sent)
        assert (status, told["status"], told["status_by"]) == (200, "ignored", "ann (flower)")
        assert (told["ignored_until"], told["ignored_rate"], told["ignored_total"]) == (
            "2026-11-23T13:00:00+00:00", 100, 9,
        )  # fmt: skip
        assert [one["task"] for one in read(ann, "/groups")["groups"]] == ["shop.mail"]
        assert read(ann, "/groups/9c1e") == {**told, "grouped": "", "merged": []}
        _, told = send(ann, "/groups/9c1e/resolve", {"release": "1.5"})
        assert (told["status"], told["resolved_in"]) == ("resolved", "1.5")
        assert send(ann, "/groups/9c1e/reopen")[1]["status"] == "open"
        assert [row.act for row in store.audit.find().rows] == ["reopen", "resolve", "ignore"]

    def test_notes_and_owners(self, ann):
        send(ann, "/groups/9c1e/note", {"note": " see #17 "})
        _, told = send(ann, "/groups/9c1e/assign", {"owner": "bob"})
        assert (told["note"], told["owner"]) == ("see #17", "bob")
        _, told = send(ann, "/groups/9c1e/note", {"note": ""})
        assert (told["note"], told["owner"]) == ("", "bob")

    @pytest.mark.parametrize(
        ("path", "body", "status"),
        [
            ("/groups/none/reopen", {}, 404), ("/groups/9c1e/ignore", {"untl": "2d"}, 400),
            ("/groups/9c1e/ignore", {"until": "yesterday"}, 400),
            ("/groups/9c1e/ignore", {"rate": "99999999999999999/s"}, 400),
            ("/groups/9c1e/ignore", {"count": 0}, 400), ("/groups/9c1e/reopen", {"why": "x"}, 400),
            ("/groups/9c1e/ignore", {"count": [1, 2]}, 400), ("/groups/9c1e/note", {}, 400),
            ("/groups/9c1e/note", {"note": None}, 400), ("/groups/9c1e/assign", {}, 400),
            ("/groups/9c1e/assign", {"owner": ["ann", "bob"]}, 400),
            ("/groups/9c1e/note", {"note": "x" * 4_001}, 400), ("/groups/9c1e/shut", {}, 404),
        ],
    )  # fmt: skip
    def test_an_invalid_request_decides_nothing(self, ann, store, path, body, status):
        answer = ann.ask(
            "POST", f"{API_ROOT}{path}", json.dumps(body), {"Content-Type": "application/json"}
        )
        assert answer.status == status, answer.body
        assert store.audit.find().rows == ()

    def test_an_unknown_group(self, ann):
        assert "No group has" in read(ann, "/groups/none", 404)["error"]["text"]
        assert read(ann, "/groups/9c1e?task=a", 400)

    def test_read_only_users_decide_nothing(self, visit, three, store):
        visitor = visit(basic_auth=["ann:secret"], read_only=True)
        visitor.log_in("ann", "secret")
        assert send(visitor, "/groups/9c1e/ignore", {})[0] == 403
        assert store.audit.find().rows == ()


def test_a_redrive_by_ids_is_made_and_can_be_followed(ann, store):
    wanted = {"id": ["77e1"], "rate": 5, "again": True}
    status, made = send(ann, "/redrive", wanted)
    assert (status, made["state"], made["planned"], made["who"]) == (
        202, "planned", 1, "ann (flower)",
    )  # fmt: skip
    assert made["orders"]["pacing"]["rate"] == 5.0
    assert made["orders"]["checking"]["max_redrives"] is None
    assert [one["id"] for one in read(ann, "/operations")["operations"]] == [made["id"]]
    assert read(ann, "/operations?state=done")["operations"] == []
    assert read(ann, f"/operations/{made['id'][:6]}")["sendings"] == []


@pytest.mark.parametrize(
    "orders",
    [{"again": "false"}, {"again": 0}, {"rate": ["1/s", "100/s"]}, {"canary": [1, 2]}],
)
def test_orders_that_can_be_misread_are_refused(ann, store, orders):
    status, told = send(ann, "/redrive", {"id": ["77e1"], **orders})
    assert status == 400, told
    assert store.operations.find() == []


def test_a_flower_without_the_projects_code_leaves_a_redrive_to_any_worker(
    visit, app, three, store, monkeypatch
):
    monkeypatch.setenv("CELERY_DLQ_STORE_URL", app.conf.dlq_store_url)
    stand_in = Celery("default", broker="memory://", set_as_current=False)
    visitor = visit(stand_in, basic_auth=["ann:secret"])
    visitor.log_in("ann", "secret")
    status, made = send(visitor, "/redrive", {"id": three})
    assert (status, made["planned"], made["app"]) == (202, 3, "")
    vars(stand_in)["dead_letter_queue"].store.close()
    stand_in.close()


def test_operations_are_paused_resumed_and_cancelled(ann, store):
    _, made = send(ann, "/redrive", {"id": "77e1", "why": "deployed"})
    reasons = {"pause": {"why": "lunch"}, "resume": {}, "cancel": {"why": "never"}}
    moves = [send(ann, f"/operations/{made['id']}/{act}", why) for act, why in reasons.items()]
    assert [(status, one["state"]) for status, one in moves] == [
        (200, "paused"), (200, "running"), (200, "cancelled"),
    ]  # fmt: skip
    status, told = send(ann, f"/operations/{made['id']}/resume")
    assert (status, told["error"]["title"]) == (409, "No longer possible")
    assert {row.who for row in store.audit.find().rows} == {"ann (flower)"}
    assert [row.why for row in store.audit.find().rows] == ["never", "", "lunch", "deployed"]


def test_a_filter_needs_the_number_of_its_letters(ann, store, three):
    for path, more in (("/redrive", {}), ("/discard", {"why": "x"})):
        status, told = send(ann, path, {"task": "charge", **more})
        assert (status, told["error"]["number"]) == (409, 2)
        status, told = send(ann, path, {"task": "charge", "number": 3, **more})
        assert (status, told["error"]["number"]) == (409, 2)
        assert send(ann, path, more)[0] == 409
    assert store.operations.find() == []
    assert {store.letters.get(task_id).state for task_id in three} == {State.DEAD}
    assert send(ann, "/discard", {"task": "charge", "number": 2, "why": "x"}) == (
        200, {"discarded": 2},
    )  # fmt: skip


class TestDelete:
    @pytest.fixture(autouse=True)
    def _closed(self, store, three):
        """The two letters of ``shop.charge`` are discarded."""
        store.closing.discard(Filter(task="charge"), who="bob", why="x", now=T0)

    def test_closed_letters_are_deleted(self, ann, store, three):
        status, told = send(ann, "/delete", {"task": "charge"})
        assert (status, told["error"]["number"]) == (409, 2)
        done = send(ann, "/delete", {"task": "charge", "number": 2, "why": "test data"})
        assert done == (200, {"deleted": 2})
        assert [store.letters.get(task_id) for task_id in three[:2]] == [None, None]
        act = store.audit.find().rows[0]
        assert (act.act, act.who, act.count, act.why) == ("delete", "ann (flower)", 2, "test data")

    def test_an_open_letter_needs_a_choice_and_a_reason(self, ann, store):
        status, told = send(ann, "/delete", {"id": "77e1", "why": "test data"})
        assert (status, told["error"]["number"]) == (409, 0)
        for body in ({"state": "dead", "why": "x"}, {"open": True}, {"open": True, "why": " "}):
            status, told = send(ann, "/delete", {"id": "77e1", **body})
            assert status == 400
            assert 'Add "open": true and a "why".' in told["error"]["text"]
        assert store.letters.get("77e1").state is State.DEAD
        body = {"id": "77e1", "open": True, "why": "test data"}
        assert send(ann, "/delete", body) == (200, {"deleted": 1})
        assert store.letters.get("77e1") is None

    @pytest.mark.parametrize(
        "body",
        [
            {"open": "no", "why": "x"}, {"open": True, "why": "x", "state": "resolved"},
            {"open": True, "why": "x", "state": "claimed"}, {"state": ["dead", "discarded"]},
            {"rate": "5/s"}, {"lose": True}, {"id": ""},
        ],
    )  # fmt: skip
    def test_an_invalid_request_deletes_nothing(self, ann, store, three, body):
        status, told = send(ann, "/delete", {"id": three, **body})
        assert (status, told["error"]["status"]) == (400, 400)
        assert store.audit.find(act="delete").rows == ()

    def test_a_slow_deletion_continues(self, ann, three, monkeypatch):
        async def act(self, work):
            await asyncio.sleep(0)
            raise NotYet

        monkeypatch.setattr(Site, "act", act)
        assert send(ann, "/delete", {"id": three[0]}) == (
            202, {"deleted": None, "text": "The deletion has started and continues."},
        )  # fmt: skip

    def test_a_read_only_flower_deletes_nothing(self, visit, three, store):
        visitor = visit(basic_auth=["ann:secret"], read_only=True)
        visitor.log_in("ann", "secret")
        assert send(visitor, "/delete", {"id": three[0]})[0] == 403
        assert store.letters.get(three[0]) is not None

    def test_a_deleted_letter_says_by_whom(self, ann, three):
        send(ann, "/delete", {"id": three[0], "why": "test data"})
        text = read(ann, f"/letters/{three[0]}", 404)["error"]["text"]
        assert text.startswith(f"The letter {three[0]!r} was deleted by ann (flower) on ")
        assert text.endswith(": test data.")


def test_an_act_without_letters_left_is_a_conflict(ann):
    assert send(ann, "/discard", {"id": "77e1", "why": "x"})[0] == 200
    status, told = send(ann, "/discard", {"id": "77e1", "why": "x"})
    assert (status, told["error"]["number"]) == (409, 0)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("?tsk=a", 400), ("?state=undead", 400), ("?limit=0", 400), ("?limit=501", 400),
        ("?limit=many", 400), ("?limit=%C2%B2", 400),
        ("?limit=0000000019999", 400), (f"?limit=1{'0' * 5_000}", 400), ("?after=x", 400),
        ("?since=soon", 400),
        ("?id=", 400), ("?search=%FF", 400), ("/letters/none", 404), ("/letters/0d3f", 400),
        ("/letters/%00", 404), ("/letters/%FF", 400), ("/groups?queue=a", 400), ("/groups?after=x", 400),
        ("/groups?status=shut", 400), ("/stats?task=a", 400), ("/retention?task=a", 400),
        ("/recorder?task=a", 400), ("/operations?state=x", 400),
        ("/operations/none", 404), ("/operations/%F0%9F%90%B0", 404), ("/redrive", 405),
        ("/operations/none/pause", 405),
    ],
)  # fmt: skip
def test_an_invalid_request_is_reported(ann, path, status):
    told = read(ann, path, status)["error"]
    assert told["status"] == status
    assert told["text"].endswith((".", "!", "?"))


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/redrive", [], 400), ("/redrive", "77e1", 400), ("/redrive", {"id": {"a": 1}}, 400),
        ("/redrive", {"id": "77e1", "rate": "fast"}, 400), ("/redrive", {"id": ""}, 400),
        ("/redrive", {"ids": "77e1"}, 400), ("/redrive", {"id": "77e1", "canary": -1}, 400),
        ("/redrive", {"id": "77e1", "canary": 2}, 400), ("/redrive", {"id": "none"}, 409),
        ("/redrive", {"id": "77e1", "state": "resolved"}, 400),
        ("/redrive", {"id": ["x"] * 1_001 + [str(n) for n in range(1_001)]}, 400),
        ("/discard", {"id": "77e1"}, 400), ("/discard", {"id": "77e1", "why": " "}, 400),
        ("/discard", {"id": "77e1", "why": "x", "rate": "5/s"}, 400),
        ("/operations/none/pause", {}, 404), ("/operations/none/cancel", {"because": "x"}, 400),
        ("/stats", {}, 405),
    ],
)  # fmt: skip
def test_an_invalid_request_changes_nothing(ann, store, path, body, status):
    found, told = send(ann, path, body)
    assert (found, told["error"]["status"]) == (status, status)
    assert store.operations.find() == []
    assert store.letters.get("77e1").state is State.DEAD


def test_an_invalid_json_body_is_refused(ann, store):
    for body in ("{", "\xff", "[" * 100_000, "{}" + " " * 2_000_000):
        answer = ann.ask("POST", f"{API_ROOT}/redrive", body, {"Content-Type": "application/json"})
        assert answer.status == 400, body[:10]
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = ann.ask("POST", f"{API_ROOT}/redrive", '{"id": "77e1"}', form)
    assert (answer.status, "Content-Type" in answer.body) == (400, True)
    assert store.operations.find() == []


class TestRules:
    def test_without_authentication_it_refuses_everyone(self, visit, three, store):
        visitor = visit()
        told = read(visitor, "", 401)["error"]
        assert "--basic_auth" in told["text"]
        assert send(visitor, "/redrive", {"id": "77e1"})[0] == 401
        assert store.operations.find() == []

    def test_an_expired_session_is_reported(self, visit, three):
        visitor = visit(auth=".*@example.com")
        assert "Log in" in read(visitor, "", 401)["error"]["text"]

    def test_a_browser_needs_its_token(self, visit, three, store):
        visitor = visit(auth=".*@example.com")
        visitor.log_in_as("bob@example.com")
        assert send(visitor, "/redrive", {"id": "77e1"})[0] == 403
        visitor.get("/dead-letters/letters")
        token = visitor.cookies["_xsrf"]
        status, made = send(visitor, "/redrive", {"id": "77e1"}, **{"X-XSRFToken": token})
        assert (status, made["who"]) == (202, "bob@example.com")

    def test_another_site_cannot_use_stored_credentials(self, ann, store):
        for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            status, told = send(ann, "/redrive", {"id": "77e1"}, **headers)
            assert (status, "another site" in told["error"]["text"]) == (403, True)
        assert store.operations.find() == []

    def test_a_read_only_flower_makes_no_changes(self, visit, three, store):
        visitor = visit(basic_auth=["ann:secret"], read_only=True)
        visitor.log_in("ann", "secret")
        assert send(visitor, "/redrive", {"id": "77e1"})[0] == 403
        assert len(ids(read(visitor, ""))) == 3
        assert store.operations.find() == []


class TestAutomations:
    def test_they_are_listed_and_shown(self, shop, ann, lease):
        assert [one["name"] for one in read(ann, "/automations")["automations"]] == [
            "trial", "charges",
        ]  # fmt: skip
        shop.automations.run(lease, lambda: lease)
        found = read(ann, "/automations/charges?limit=1")
        assert (found["where"], found["owner"]) == ({"task": "shop.charge"}, "payments")
        [handling] = found["latest"]
        assert (handling["name"], handling["state"], handling["verdict"]) == (
            "charges", "done", "redrive",
        )  # fmt: skip

    def test_a_dry_run_changes_nothing(self, shop, ann, store):
        found = read(ann, "/automations/charges/dry-run")
        assert found["letters"] == ["0d3f1111-aaaa", "0d3f2222-bbbb"]
        assert (found["not_now"], found["held"]) == ([], {})
        assert store.automations.find().rows == ()

    def test_one_is_paused_and_resumed(self, shop, ann, store):
        status, told = send(ann, "/automations/charges/pause", {"why": "deploying"})
        [one] = told["automations"]
        assert (status, one["state"], one["state_by"]) == (200, "paused", "ann (flower)")
        assert one["stopped"] == "it is paused by ann (flower): deploying"
        assert send(ann, "/automations/charges/run")[0] == 409
        # A program may ask twice.
        assert send(ann, "/automations/charges/pause")[0] == 200
        assert send(ann, "/automations/charges/resume")[1]["automations"][0]["state"] == "active"
        assert [row.act for row in store.audit.find().rows] == ["resume", "pause"]

    def test_all_are_paused(self, shop, ann):
        status, told = send(ann, "/automations/*/pause")
        assert (status, [one["state"] for one in told["automations"]]) == (200, ["paused"] * 2)

    def test_run_makes_it_due(self, shop, ann, store, lease):
        shop.automations.run(lease, lambda: lease)
        assert send(ann, "/automations/charges/run")[0] == 200
        assert store.automations.statuses()["charges"].looked_at is None

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("get", "/automations/charge", 404), ("get", "/automations?name=a", 400),
            ("get", "/automations/charges?limit=0", 400),
            ("get", "/automations/charge/dry-run", 404),
            ("get", "/automations/charges/pause", 405), ("post", "/automations/charge/pause", 404),
            ("post", "/automations/*/run", 404),
        ],
    )  # fmt: skip
    def test_an_invalid_request_changes_nothing(self, shop, ann, store, method, path, status):
        if method == "get":
            told = read(ann, path, status)
        else:
            assert send(ann, path)[0] == status
            told = send(ann, path)[1]
        assert told["error"]["status"] == status
        assert store.automations.statuses() == {}

    def test_a_field_that_is_not_known_is_refused(self, shop, ann, store):
        assert send(ann, "/automations/charges/pause", {"because": "x"})[0] == 400
        assert store.automations.statuses() == {}

    def test_an_app_without_any(self, ann):
        assert read(ann, "/automations") == {"automations": []}


def test_held_letters_are_found_and_explained(shop, ann, hold):
    hold("0d3f1111-aaaa", "it failed differently")
    assert ids(read(ann, "?held=1")) == ["0d3f1111-aaaa"]
    assert read(ann, "?held=0", 400)["error"]["text"].startswith("held must be 1, or left out")
    held = read(ann, "/letters/0d3f1111-aaaa")["held"]
    assert (held["name"], held["why"]) == ("charges", "it failed differently")
    assert read(ann, "/letters/77e1")["held"] is None
    status, told = send(ann, "/redrive", {"held": True})
    assert (status, told["error"]["number"]) == (409, 1)
    assert send(ann, "/redrive", {"held": True, "number": 1})[1]["planned"] == 1


def test_handlings_and_tickets_are_in_the_records(ann, handled):
    handled("77e1", Escalate("payments", "the bank is away"))
    letter_of = read(ann, "/letters/77e1")
    [handling], [ticket] = letter_of["handlings"], letter_of["tickets"]
    assert (handling["name"], handling["verdict"], handling["state"]) == (
        "ticketing", "escalate", "done",
    )  # fmt: skip
    assert (ticket["kind"], ticket["to"], ticket["why"]) == (
        "escalation", "payments", "the bank is away",
    )  # fmt: skip
    assert [one["tickets"] for one in read(ann, "/groups")["groups"]] == [[], [ticket]]
    assert read(ann, "/groups/aaaa")["tickets"] == [ticket]
    assert send(ann, "/groups/aaaa/reopen")[1]["tickets"] == [ticket]


def properties(name):
    """The names in a schema, including those of included schemas."""
    schema = SCHEMAS[name]
    parts = schema.get("allOf", [schema])
    return {
        key
        for part in parts
        for key in (
            properties(part["$ref"].rpartition("/")[2]) if "$ref" in part else part["properties"]
        )
    }


def enums(node):
    """All enumerations in the description, by name."""
    if isinstance(node, dict):
        for value in node.values():
            yield from enums(value)
        if "enum" in node:
            yield tuple(node["enum"])
    if isinstance(node, list):
        for value in node:
            yield from enums(value)


class TestDescription:
    def test_every_route_is_in_it_and_every_path_is_a_route(self):
        served = {
            (route.path, method)
            for route in API
            for method in ("get", "post")
            if method in {name for kind in route.handler.__mro__[:-4] for name in vars(kind)}
            and method.upper() not in route.handler.of_page
        }
        written = {(path, method) for path, item in DESCRIPTION["paths"].items() for method in item}
        assert served == written

    def test_records_have_the_fields_that_it_names(
        self, shop, ann, handled, lease, round_of_retention
    ):
        handled("77e1", Ticket("https://tickets/1"))
        shop.automations.run(lease, lambda: lease)
        send(ann, "/redrive", {"id": "77e1"})
        [operation, *_] = read(ann, "/operations")["operations"]
        shop.store.requests.create(
            Filter(), act="edit", who="ann", why="", letters={}, changes={}, shown={},
            expires_after_s=9,
        )  # fmt: skip
        found = {
            "Letter": read(ann, "")["letters"][0],
            "WholeLetter": read(ann, "/letters/77e1"),
            "Group": read(ann, "/groups")["groups"][0],
            "WholeGroup": read(ann, "/groups/9c1e"),
            "Stats": read(ann, "/stats"),
            "Keeping": read(ann, "/retention"),
            "Recorded": read(ann, "/recorder"),
            "Operation": operation,
            "Automation": read(ann, "/automations")["automations"][0],
            "WholeAutoRedrive": read(ann, "/automations/charges"),
            "AutoTrial": read(ann, "/automations/charges/dry-run"),
            "Handling": read(ann, "/letters/77e1")["handlings"][0],
            "Ticket": read(ann, "/letters/77e1")["tickets"][0],
            "Request": read(ann, "/requests")["requests"][0],
        }
        assert {name: set(record) for name, record in found.items()} == {
            name: properties(name) for name in found
        }

    def test_it_has_every_filter(self):
        given = DESCRIPTION["paths"][API_ROOT]["get"]["parameters"]
        named = {one["$ref"].rpartition("/")[2] if "$ref" in one else one["name"] for one in given}
        assert named == {*NAMES, "limit", "after"}
        assert properties("Selection") == {*NAMES, "number"}

    def test_words_are_those_of_the_code(self):
        kinds = (
            Reason, State, OperationState, SendingState, GroupStatus, Mark, AutoMode, AutoState,
            HandlingState, TicketKind, ReportKind, Verdict, RequestState,
        )  # fmt: skip
        known = {tuple(item.value for item in kind) for kind in kinds}
        assert {frozenset(one) for one in enums(DESCRIPTION)} == {frozenset(one) for one in known}


def test_values_outside_json_are_sent_as_text(ann, store):
    headers = {"nan": float("nan"), "bytes": b"\x00\xff", "deep": {"when": T0}}
    odd = envelope("odd", headers=headers, properties={"inf": float("inf")})
    store.letters.save([letter("odd", args=["\ud800\x00"], message="\u202e\ud800", envelope=odd)])
    found = read(ann, "/letters/odd")
    assert found["args"] == ["\ud800\x00"]
    assert "NaN" not in ann.get(f"{API_ROOT}/letters/odd").body
    assert ann.get("/dead-letters/letters/odd").status == 200
