"""Several teams in one Flower."""

import contextlib
import json

import pytest
from support.factories import attempt, letter

from celery_dlq.model.fingerprint import within
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.store.sql import SQLStore

CAUSE = "9c1e0000deadbeef"


@pytest.fixture
def teams(app):
    """The stores of two teams, each with two letters."""
    with contextlib.ExitStack() as stores:
        found = {}
        for name in ("shop", "mail"):
            url = app.conf.dlq_store_url
            found[name] = stores.enter_context(
                contextlib.closing(SQLStore(url, namespaces=(name,)))
            )
            cause = within(name, CAUSE)
            found[name].letters.save(
                [
                    letter(f"{name}-{at}", attempt(minutes=at), namespace=name, fingerprint=cause)
                    for at in (1, 2)
                ]
            )
        yield found


@pytest.fixture
def ann(visit, app, teams):
    """Ann, who has logged in to a Flower that shows all."""

    def ann(namespace="*"):
        app.conf.dlq_namespace = namespace
        visitor = visit(basic_auth=["ann:secret"])
        visitor.log_in("ann", "secret")
        return visitor

    return ann


PAGES = ("letters", "groups", "operations", "audit")


@pytest.mark.parametrize("page", PAGES)
def test_a_list_of_several_has_a_column_with_the_namespace(ann, teams, operation, page):
    for name, store in teams.items():
        wanted = Filter(ids=(f"{name}-1",))
        store.operations.create(operation(f"{name}0000", wanted=wanted))
    answer = ann().get(f"/dead-letters/{page}")
    assert answer.status == 200
    cells = [text.strip() for _, text in answer.find("td", data_label="Namespace")]
    cells = cells or [
        text.strip()
        for tag, found, text in answer.elements
        if tag == "td" and found.get("data-label") == "Namespace"
    ]
    assert {*cells} == {"shop", "mail"}


@pytest.mark.parametrize("page", PAGES)
def test_a_list_of_one_has_none(ann, page):
    answer = ann("shop").get(f"/dead-letters/{page}")
    assert answer.status == 200
    assert "Namespace" not in answer.body


def test_one_of_them_is_chosen_by_a_filter(ann):
    visitor = ann(["shop", "mail"])
    page = visitor.get("/dead-letters/letters?namespace=mail")
    assert "mail-1" in page.body
    assert "shop-1" not in page.body
    found = json.loads(visitor.get("/api/dead-letters?namespace=shop").body)
    assert [one["namespace"] for one in found["letters"]] == ["shop", "shop"]
    groups = json.loads(visitor.get("/api/dead-letters/groups?namespace=shop").body)
    assert [one["namespace"] for one in groups["groups"]] == ["shop"]


def test_the_page_of_a_letter_of_another_app_is_not_there(ann):
    visitor = ann("mail")
    for path in ("letters/shop-1", f"groups/{within('shop', CAUSE)}"):
        assert visitor.get(f"/dead-letters/{path}").status == 404
        assert visitor.get(f"/api/dead-letters/{path}").status == 404


def test_an_act_on_letters_of_several_is_refused_and_one_on_those_of_one_is_done(ann, teams):
    visitor = ann()

    def discard(**given):
        body = json.dumps({"why": "x", **given})
        headers = {"Content-Type": "application/json"}
        return visitor.ask("POST", "/api/dead-letters/discard", body, headers)

    refused = discard(number=4, task="charge")
    assert refused.status == 400, refused.body
    assert "name it with --namespace" in refused.body
    assert all(store.counts.letters(Filter()) == 2 for store in teams.values())
    assert discard(number=2, namespace="mail").status == 200
    assert discard(id="shop-1").status == 200
    closed = Filter(states=frozenset({State.DISCARDED}))
    assert teams["mail"].counts.letters(closed) == 2
    assert teams["shop"].counts.letters(closed) == 1
    assert [row.act for row in teams["shop"].audit.find().rows] == ["discard"]
