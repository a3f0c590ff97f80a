"""Acts that wait for a second person in Flower and its REST API."""

from __future__ import annotations

import json

import pytest

from celery_dlq import Approval
from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import ApprovalNeeded
from celery_dlq.model.request import RequestState

PAGE = "/dead-letters/requests"
API = "/api/dead-letters"


@pytest.fixture
def app(shop_app):
    shop_app.conf.dlq_approval = Approval()
    return shop_app


@pytest.fixture
def people(visit, three):
    """Visitors of one Flower, by their names."""
    visitors = {}
    for name in ("ann", "bob"):
        visitors[name] = visit(basic_auth=["ann:secret", "bob:secret"])
        visitors[name].log_in(name, "secret")
    return visitors


@pytest.fixture
def ann(people):
    return people["ann"]


@pytest.fixture
def bob(people):
    return people["bob"]


def send(visitor, path, body=None):
    sent = json.dumps(body) if body is not None else ""
    answer = visitor.ask("POST", f"{API}{path}", sent, {"Content-Type": "application/json"})
    return answer.status, json.loads(answer.body), answer.headers


def read(visitor, path):
    return json.loads(visitor.get(f"{API}{path}").body)


@pytest.fixture
def asked(ann):
    status, said, headers = send(ann, "/redrive", {"id": ["77e1"], "why": "fixed"})
    assert status == 202
    assert headers["Location"] == f"{API}/requests/{said['request']}"
    assert "second person" in said["text"]
    return said["request"]


def press(visitor, request, act):
    page = visitor.get(f"{PAGE}/{request}")
    form = page.form(f"{PAGE}/{request}/{act}")
    return visitor.post(f"{PAGE}/{request}/{act}", form)


class TestRest:
    def test_another_login_approves(self, bob, asked, store):
        [one] = read(bob, "/requests")["requests"]
        assert (one["id"], one["who"], one["proven"]) == (asked, "ann (flower)", True)
        status, done, _ = send(bob, f"/requests/{asked}/approve", {"why": "fine"})
        assert (status, done["state"], done["letters"]) == (200, "done", ["77e1"])
        assert store.operations.get(asked).who == "ann (flower)"
        assert read(bob, f"/requests/{asked}")["answers"][0]["who"] == "bob (flower)"

    def test_the_requester_does_not(self, ann, bob, asked):
        status, said, _ = send(ann, f"/requests/{asked}/approve")
        assert status == 409
        assert "another person has to approve it" in said["error"]["text"]
        assert send(bob, f"/requests/{asked}/refuse", {"why": "no"})[1]["state"] == "refused"
        assert send(bob, f"/requests/{asked}/approve")[0] == 409

    def test_a_flower_without_a_login_proves_nothing(self, visit, asked, store, monkeypatch):
        monkeypatch.setenv("FLOWER_UNAUTHENTICATED_API", "true")
        anyone = visit(basic_auth=[])
        status, said, _ = send(anyone, f"/requests/{asked}/approve")
        assert status == 409
        assert "No login proves the name anonymous at" in said["error"]["text"]
        assert store.operations.find() == []

    @pytest.mark.parametrize("path", ["nosuch", "nosuch/approve", "nosuch/refuse"])
    def test_an_unknown_request(self, ann, path):
        ask = "POST" if "/" in path else "GET"
        assert ann.ask(ask, f"{API}/requests/{path}", "" if ask == "POST" else None).status == 404

    def test_other_acts_become_requests_too(self, ann, store):
        body = {"id": ["77e1"], "open": True, "why": "old"}
        assert send(ann, "/delete", body)[0] == 202
        assert [one.act for one in store.requests.find()] == ["delete"]


class TestPages:
    def test_the_form_of_an_act_leads_to_the_request(self, ann, store):
        page = ann.get("/dead-letters/letters/77e1")
        answer = ann.post(
            "/dead-letters/letters/77e1/redrive", page.form("/dead-letters/letters/77e1/redrive")
        )
        [request] = store.requests.find()
        assert (answer.status, answer.headers["Location"]) == (303, f"{PAGE}/{request.id}")
        assert store.operations.find() == []

    def test_an_edit_leads_to_a_request_that_shows_the_change(self, ann, bob, app, store):
        queue = DeadLetterQueue.of(app)
        with pytest.raises(ApprovalNeeded) as asked:
            queue.edit("77e1", who="ann", kwargs={"currency": "USD", "password": "hunter2"})
        page = bob.get(f"{PAGE}/{asked.value.request}")
        assert '+ kwargs.currency = "USD"' in page.text
        assert "change=" not in page.text
        assert "hunter2" not in page.body
        assert "hunter2" not in ann.get(f"{API}/requests/{asked.value.request}").body

    def test_another_person_approves(self, bob, asked, store):
        assert "ann (flower) asks: redrive 1 letter" in bob.get(f"{PAGE}/{asked}").text
        answer = press(bob, asked, "approve")
        assert (answer.status, answer.headers["Location"]) == (303, f"{PAGE}/{asked}?done=approve")
        assert store.operations.get(asked) is not None
        page = bob.get(answer.headers["Location"])
        assert "Your approval was recorded." in page.text
        assert page.find("a", href=f"/dead-letters/operations/{asked}")
        assert "Expires" not in page.text
        assert "other login" not in page.text
        assert not page.find("form", action=f"{PAGE}/{asked}/refuse")

    def test_the_requester_sees_why_not_and_may_withdraw(self, ann, asked, store):
        page = ann.get(f"{PAGE}/{asked}")
        assert "another person has to approve it" in page.text
        assert ("Withdraw" in page.text, "Refuse" in page.text) == (True, False)
        assert not page.find("button", id="dlq-approve")
        assert press(ann, asked, "refuse").status == 303
        assert store.requests.get(asked).state is RequestState.REFUSED

    def test_a_user_without_the_role_sees_no_buttons(self, app, bob, asked):
        app.conf.dlq_roles = {"read": ["*"]}
        page = bob.get(f"{PAGE}/{asked}")
        assert "ann (flower) asks: redrive 1 letter" in page.text
        assert not page.find("form", action=f"{PAGE}/{asked}/refuse")

    def test_a_form_is_used_once(self, ann, asked):
        form = ann.get(f"{PAGE}/{asked}").form(f"{PAGE}/{asked}/refuse")
        assert ann.post(f"{PAGE}/{asked}/refuse", form).status == 303
        assert ann.post(f"{PAGE}/{asked}/refuse", form).status == 409

    def test_the_list(self, ann, asked):
        page = ann.get(PAGE)
        assert page.find("a", href=f"{PAGE}/{asked}")
        assert "fixed" in page.text

    def test_an_empty_list(self, ann):
        assert "No act has needed a second person." in ann.get(PAGE).text

    def test_the_audit_links_to_it(self, ann, asked):
        page = ann.get("/dead-letters/audit")
        assert page.find("a", href=f"{PAGE}/{asked}")
        assert "asked to redrive 1 letter" in page.text
