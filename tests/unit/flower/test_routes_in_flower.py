"""Routes in Flower: the filter of the lists, and the route with its owner on pages and in the REST API."""

import json

import pytest
from support.factories import attempt, letter

from celery_dlq import Route


@pytest.fixture
def configured(app):
    """Set before the store reads the settings."""
    app.conf.dlq_routes = [Route("payments", task="shop.*", owner="team-payments")]


@pytest.fixture
def routed(configured, store):
    store.letters.save(
        [
            letter("aaaa1111", attempt(minutes=1), route="payments", fingerprint="d" * 16),
            letter("bbbb2222", attempt(minutes=2), fingerprint="b" * 16, exception_type="KeyError"),
        ]
    )


pytestmark = pytest.mark.usefixtures("routed")


def test_the_list_is_narrowed_by_a_route(ann):
    page = ann.get("/dead-letters/letters?route=payments")
    assert page.status == 200
    assert "aaaa" in page.body
    assert "bbbb" not in page.body
    assert page.find("input", name="route")[0][0]["value"] == "payments"


def test_a_letter_shows_its_route_and_owner(ann):
    assert "team-payments" in ann.get("/dead-letters/letters/aaaa1111").text
    assert "Owner of the route" not in ann.get("/dead-letters/letters/bbbb2222").text


def test_groups_are_narrowed_by_a_route_and_show_its_owner(ann):
    text = ann.get("/dead-letters/groups?route=payments").text
    assert "team-payments" in text
    assert "KeyError" not in text
    assert "team-payments" in ann.get("/dead-letters/groups/dddddddddddddddd").text


@pytest.mark.parametrize(
    ("address", "read"),
    [
        ("/api/dead-letters?route=payments", lambda told: told["letters"][0]["owner"]),
        ("/api/dead-letters/letters/aaaa1111", lambda told: told["owner"]),
        ("/api/dead-letters/groups?route=payments", lambda told: told["groups"][0]["route_owner"]),
        ("/api/dead-letters/groups/dddddddddddddddd", lambda told: told["route_owner"]),
    ],
)
def test_the_rest_api_has_the_owner_of_the_route(ann, address, read):
    answer = ann.get(address)
    assert answer.status == 200, answer.body
    assert read(json.loads(answer.body)) == "team-payments"
