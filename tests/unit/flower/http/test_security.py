"""Permissions. tests/integration/screens/test_flower_versions.py tests them on each version of Flower."""

import pytest
from support.factories import T0

from celery_dlq.flower.http import permission
from celery_dlq.flower.http.permission import VALID_S, Forms
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter

LETTER = "/dead-letters/letters/77e1"
DISCARD = f"{LETTER}/discard"
DELETE = "/dead-letters/delete?id=77e1&state=dead"


def form(visitor, action=DISCARD):
    return {**dict(visitor.get(LETTER).form(action)), "why": "test"}


#: Forms that show a message or a plan, and change nothing.
CHECKS = {
    "/dead-letters/redrive": {"task": "mail", "set": "args[0]=18", "plan": "1"},
    f"{LETTER}/edit": {"args": "[]", "kwargs": "{}", "headers": "{}", "do": "check"},
}


def is_open(store):
    return store.letters.get("77e1").state is State.DEAD


def test_without_authentication_it_can_be_read_and_explains_why_not_changed(visit, three, store):
    visitor = visit()
    page = visitor.get(LETTER)
    assert page.status == 200
    [(_, note)] = page.find("p", id="dlq-locked")
    assert "--basic_auth" in note
    assert page.find("form") == []
    answer = visitor.post(DISCARD, {"why": "x"})
    assert (answer.status, "--basic_auth" in answer.text) == (403, True)
    for path in (f"{LETTER}/edit", "/dead-letters/redrive?task=mail", DELETE):
        assert visitor.get(path).status == 403
    assert is_open(store)


def test_an_explicitly_opened_flower_makes_changes(visit, three, store, monkeypatch):
    monkeypatch.setenv("FLOWER_UNAUTHENTICATED_API", "true")
    visitor = visit()
    assert visitor.post(DISCARD, form(visitor)).status == 303
    assert store.letters.get("77e1").closed_by == "anonymous at 127.0.0.1 (flower)"


def test_a_read_only_flower_makes_no_changes(visit, three, store):
    visitor = visit(basic_auth=["ann:secret"], read_only=True)
    visitor.log_in("ann", "secret")
    [(_, note)] = visitor.get(LETTER).find("p", id="dlq-locked")
    assert "--read_only" in note
    assert visitor.post(DISCARD, {"why": "x"}).status == 403
    for path in (f"{LETTER}/edit", DELETE):
        assert visitor.get(path).status == 403
    for path, given in CHECKS.items():
        assert visitor.post(path, given).status == 403
    assert visitor.get(LETTER).find("a", id="dlq-delete") == []
    assert is_open(store)


def test_a_deletion_needs_the_token_and_the_mark_of_its_form(visit, three, store):
    visitor = visit(basic_auth=["ann:secret"])
    visitor.log_in("ann", "secret")
    action = DELETE.partition("?")[0]
    given = {**dict(visitor.get(DELETE).form(action)), "lose": "1", "why": "test"}
    evil = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert visitor.post(action, given, **evil).status == 403
    assert visitor.post(action, {**given, "_xsrf": "x"}).status == 403
    assert visitor.post(action, {**given, "mark": "1.2.3"}).status == 409
    assert is_open(store)
    assert visitor.post(action, given).status == 303
    assert store.letters.get("77e1") is None


def test_basic_authentication_is_asked_for(visit, three, store):
    visitor = visit(basic_auth=["ann:secret"])
    for answer in (visitor.get(LETTER), visitor.post(DISCARD, {"why": "x"})):
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Basic")
        assert "77e1" not in answer.body
    visitor.log_in("ann", "wrong")
    assert visitor.get(LETTER).status == 401
    assert is_open(store)


def test_a_page_without_a_login_redirects_to_the_login_and_back(visit, three, store):
    visitor = visit(auth=".*@example.com", url_prefix="ops/flower")
    answer = visitor.get(f"/ops/flower{LETTER}?a=b")
    assert answer.status == 302
    assert answer.headers["Location"] == (
        "/ops/flower/login?next=%2Fops%2Fflower%2Fdead-letters%2Fletters%2F77e1%3Fa%3Db"
    )
    visitor.log_in_as("eve@elsewhere.org")
    assert visitor.get(f"/ops/flower{LETTER}").status == 302


def test_all_addresses_have_the_url_prefix(visit, three, store):
    visitor = visit(auth=".*@example.com", url_prefix="/ops/flower/")
    visitor.log_in_as("bob@example.com")
    page = visitor.get(f"/ops/flower{LETTER}")
    assert page.status == 200
    addresses = [found.get("href") or found.get("action") or found.get("src") or "/ops/flower"
                 for tag in ("a", "form", "link", "script") for found, _ in page.find(tag)]  # fmt: skip
    assert [one for one in addresses if not one.startswith(("/ops/flower", "https://", "#"))] == []
    action = f"/ops/flower{DISCARD}"
    given = {**dict(page.form(action)), "why": "test"}
    assert visitor.post(action, given).headers["Location"] == f"/ops/flower{LETTER}?done=discarded"
    assert store.letters.get("77e1").closed_by == "bob@example.com"


def test_an_expired_session_is_reported_and_changes_nothing(visit, three, store):
    visitor = visit(auth=".*@example.com")
    visitor.log_in_as("bob@example.com")
    given = form(visitor)
    del visitor.cookies["user"]
    answer = visitor.post(DISCARD, given)
    assert (answer.status, "Log in" in answer.text) == (403, True)
    assert is_open(store)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ],
    ids=str,
)
def test_a_request_from_elsewhere_changes_nothing(ann, store, headers):
    answer = ann.post(DISCARD, form(ann), **headers)
    assert (answer.status, "another site" in answer.text) == (403, True)
    assert is_open(store)


def test_a_request_without_the_token_of_this_browser_changes_nothing(ann, store):
    given = form(ann)
    token = given.pop("_xsrf")
    for attempt in ({}, {"_xsrf": ""}, {"_xsrf": "2|00000000|nonsense|1"}, {"_xsrf": token[::-1]}):
        answer = ann.post(DISCARD, {**given, **attempt})
        assert (answer.status, "Reload the page" in answer.text) == (403, True)
    ann.cookies["_xsrf"] = "another"
    assert ann.post(DISCARD, {**given, "_xsrf": token}).status == 403
    del ann.cookies["_xsrf"]
    assert ann.post(DISCARD, {**given, "_xsrf": token}).status == 403
    assert is_open(store)


@pytest.mark.parametrize("path", ["/dead-letters/redrive", f"{LETTER}/edit"])
def test_a_check_needs_the_token(ann, path):
    given = {**CHECKS[path], "_xsrf": form(ann)["_xsrf"]}
    assert ann.post(path, given).status == 200
    assert ann.post(path, {**given, "_xsrf": "x"}).status == 403
    evil = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert ann.post(path, given, **evil).status == 403


def test_another_users_form_is_refused(visit, three, store):
    visitor = visit(basic_auth=["ann:secret", "bob:secret"])
    visitor.log_in("ann", "secret")
    given = form(visitor)
    visitor.log_in("bob", "secret")
    assert visitor.post(DISCARD, given).status == 409
    assert is_open(store)


@pytest.mark.parametrize("path", ["/dead-letters/letters", LETTER, "/dead-letters/of-task/77e1",
                                  "/dead-letters/letters/none", "/dead-letters/static/dlq.css"])  # fmt: skip
def test_no_other_site_may_read(visit, three, path, monkeypatch):
    monkeypatch.setenv("FLOWER_UNAUTHENTICATED_API", "true")
    visitor = visit()
    for method in ("GET", "OPTIONS"):
        headers = visitor.ask(method, path, headers={"Origin": "https://evil.example"}).headers
        assert [name for name in headers if name.lower().startswith("access-control")] == []


@pytest.mark.parametrize(
    "path",
    [
        "/dead-letters/letters", LETTER, "/dead-letters/letters/none", f"{LETTER}/edit",
        "/dead-letters/redrive?task=mail&plan=1&set=args[0]=18",
    ],
)  # fmt: skip
def test_pages_load_nothing_from_elsewhere_and_nothing_inline(ann, path):
    page = ann.get(path)
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["X-Frame-Options"] == "DENY"
    assert page.headers["Cache-Control"] == "no-store"
    assert page.find("style") == []
    assert [text for _, text in page.find("script") if text.strip()] == []
    assert [found for _tag, found, _ in page.elements if "style" in found] == []
    assert [
        name for _tag, found, _ in page.elements for name in found if name.startswith("on")
    ] == []


class TestForms:
    def test_a_mark_is_accepted_once(self):
        forms = Forms()
        mark = forms.mark("discard", "ann")
        assert forms.take(mark, "discard", "ann")
        assert not forms.take(mark, "discard", "ann")

    def test_a_mark_is_for_one_act_of_one_actor_in_one_flower(self):
        forms = Forms()
        mark = forms.mark("discard", "ann")
        assert not forms.take(mark, "redrive", "ann")
        assert not forms.take(mark, "discard", "bob")
        assert not Forms().take(mark, "discard", "ann")
        assert forms.take(mark, "discard", "ann")

    def test_a_mark_expires(self):
        now = [1_000_000.0]
        forms = Forms(lambda: now[0])
        old, used = forms.mark("discard", "ann"), forms.mark("discard", "ann")
        assert forms.take(used, "discard", "ann")
        now[0] += VALID_S + 1
        assert not forms.take(old, "discard", "ann")
        assert not forms.take(used, "discard", "ann")


class Options:
    basic_auth, auth = ["x"], None


@pytest.mark.parametrize("header", ["", "Basic", "Basic ???", "Basic /w==", "Basic Og=="])
def test_an_actor_with_an_unreadable_name_is_unknown(header):
    actor = permission.actor_of(True, {"Authorization": header}, "::1", Options())
    assert actor == "unknown (flower)"


def test_the_audit_is_written_by_the_act_itself(ann, store):
    store.closing.discard(Filter(ids=("0d3f1111-aaaa",)), who="cli", why="x", now=T0)
    ann.post(DISCARD, form(ann))
    assert [row.who for row in store.audit.find().rows] == ["ann (flower)", "cli"]
