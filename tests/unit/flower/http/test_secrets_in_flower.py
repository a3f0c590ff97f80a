"""A secret in every place that may hold one; neither a page nor the REST API shows it."""

import pytest
from support.stores.planted_secrets import GROUP, OPERATION, SECRET, TASK_ID, TEXT, plant

from celery_dlq.errors import StoreUnavailable


@pytest.fixture(autouse=True)
def planted(store):
    plant(store)


@pytest.mark.parametrize(
    "path",
    [
        "", "/letters", f"/letters/{TASK_ID}", "/letters/5ec4e7bb", "/letters/5ec4e7cc", "/letters/unread",
        "/groups", f"/groups/{GROUP}", "/operations",
        f"/operations/{OPERATION}?state=skipped&state=unknown&state=sent",
    ],
)  # fmt: skip
def test_pages_hide_secrets(ann, path):
    page = ann.get(f"/dead-letters{path}")
    assert page.status == 200, page.text
    assert SECRET not in page.body
    assert "[redacted]" in page.body


@pytest.mark.parametrize(
    "path",
    [
        "", f"/letters/{TASK_ID}", "/letters/5ec4e7bb", "/letters/5ec4e7cc", "/letters/unread", "/groups",
        f"/groups/{GROUP}", "/operations", f"/operations/{OPERATION}",
    ],
)  # fmt: skip
def test_the_rest_api_hides_secrets(ann, path):
    answer = ann.get(f"/api/dead-letters{path}")
    assert answer.status == 200, answer.body
    assert SECRET not in answer.body
    assert "[redacted]" in answer.body


@pytest.mark.parametrize("path", [f"/groups/{GROUP}/resolve", f"/operations/{OPERATION}/cancel"])
def test_answers_to_acts_hide_secrets(ann, path):
    answer = ann.ask("POST", f"/api/dead-letters{path}", "{}", {"Content-Type": "application/json"})
    assert answer.status == 200, answer.body
    assert SECRET not in answer.body
    assert "[redacted]" in answer.body


def test_an_error_is_reported_without_secrets(ann, store, monkeypatch):
    def fail(*args, **kwargs):
        raise StoreUnavailable(TEXT)

    monkeypatch.setattr(type(store.letters), "get", fail)
    for path in (f"/dead-letters/letters/{TASK_ID}", f"/api/dead-letters/letters/{TASK_ID}"):
        body = ann.get(path).body
        assert "shop:[redacted]@db/shop" in body
        assert SECRET not in body


def test_an_editor_sees_the_message_unredacted(ann):
    assert SECRET in ann.get("/dead-letters/letters/unread/edit").text
