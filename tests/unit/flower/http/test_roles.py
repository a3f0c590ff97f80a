"""Roles: who has one, and which one each address needs."""

from __future__ import annotations

import pytest
from support.factories import operation

from celery_dlq.flower.http.permission import ROLE_OF, has_role
from celery_dlq.flower.resources.bulk import ManyLetters
from celery_dlq.flower.resources.editor import EditPage
from celery_dlq.flower.routes import API, PAGES, Nothing
from celery_dlq.settings.validation import ROLES

#: Each user of the pages has the role that is named like the user; nobody has none.
OF_THEIR_OWN = {role: [role] for role in ROLES}

#: The acts of the routes by the role that they need.
ACTS = {
    "triage": {
        "discard", "undiscard", "ignore", "resolve", "reopen", "note", "assign", "merge", "split"
    },
    "act": {"redrive", "edit", "unpark", "pause", "resume", "cancel", "run"},
    "approve": {"approve", "refuse"},
    "erase": {"delete"},
}  # fmt: skip

#: What a refusal for want of a role says.
SAID = "in dlq_roles"


def may(users, name, *, is_address=True, role="act", **others):
    return has_role({role: users, **others}, role, name, is_address=is_address)


@pytest.mark.parametrize("role", ROLES)
def test_without_the_setting_everyone_has_every_role(role):
    assert has_role(None, role, "", is_address=False)


def test_a_user_is_named_in_any_case():
    assert may(["Anna@Example.com"], "anna@example.COM")
    assert may(["ann"], "Ann", is_address=False)
    assert not may(["ann"], "anna", is_address=False)
    assert not may([], "ann", is_address=False)


def test_a_star_means_everyone_who_has_logged_in():
    assert may(["*"], "ann", is_address=False)
    assert not may(["*"], "", is_address=False)


def test_an_anonymous_visitor_may_at_most_read():
    everyone = {role: ["*"] for role in ROLES}
    found = [role for role in ROLES if has_role(everyone, role, "", is_address=False)]
    assert found == ["read"]
    assert not has_role({"act": ["*"]}, "read", "", is_address=False)


def test_each_role_includes_reading_and_no_other():
    for role in ROLES:
        found = {one for one in ROLES if has_role({role: ["ann"]}, one, "ann", is_address=False)}
        assert found == {role, "read"}


@pytest.mark.parametrize("name", ["x@example.com", "X.Y+z@EXAMPLE.com"])
def test_a_domain_has_its_addresses(name):
    assert may(["@Example.com"], name)


@pytest.mark.parametrize(
    "name",
    [
        "x@example.com.evil", "x@evil.example.com", "x@notexample.com", "a@evil@example.com", "@example.com",
        "example.com", "x@example.com ", "x@example.com\n", "x@example.com.", '"x@example.com"@evil', "x@",
        "x@example.com\x00", "x@example.com,y@evil", "x@exam\u200bple.com", "x@\u0435xample.com",
        "x\u212a@evil",
        "@", "", "*", "x@example.com@",
    ],
)  # fmt: skip
def test_a_domain_has_no_other_name(name):
    assert not may(["@example.com"], name)


def test_a_name_of_basic_authentication_has_no_domain():
    assert not may(["@example.com"], "x@example.com", is_address=False)
    assert may(["x@example.com"], "x@example.com", is_address=False)


def test_letters_that_become_ascii_in_lower_case_are_others():
    assert not may(["kate@example.com"], "\u212aate@example.com")
    assert not may(["strasse@example.com"], "stra\u00dfe@example.com")
    assert not may(["@\u212a.example"], "x@k.example")


def test_each_act_has_a_role():
    assert {act: role for role, acts in ACTS.items() for act in acts} == ROLE_OF


class Table:
    """The routes with their methods, and the role that each needs."""

    @staticmethod
    def rows():
        for route in (*PAGES, *API):
            for method in ("get", "post", "put", "delete", "patch"):
                own = getattr(route.handler, method)
                is_of_page = (
                    route.path.startswith("/api/") and method.upper() in route.handler.of_page
                )
                if own.__module__.startswith("celery_dlq") and not is_of_page:
                    yield route, method.upper()

    @staticmethod
    def role(route, method):
        # The forms of these pages show what only those who may act need; they lead nowhere else.
        if method == "GET" and not issubclass(route.handler, (ManyLetters, EditPage)):
            return "read"
        return next(role for role, acts in ACTS.items() if route.act in acts)


def test_each_route_and_method_needs_a_role():
    rows = [*Table.rows()]
    assert len(rows) > 70
    assert {Table.role(*row) for row in rows} == {*ROLES}


@pytest.fixture
def as_user(app, visit, three, store):
    """Flower with roles, and a user who has logged in."""
    app.conf.dlq_roles = OF_THEIR_OWN
    store.operations.create(operation("77e1"))
    visitor = visit(basic_auth=[f"{name}:x" for name in (*ROLES, "nobody")])

    def log_in(name):
        visitor.log_in(name, "x")
        return visitor

    return log_in


def asked(visitor, route, method):
    """Whether a request is refused for want of a role."""
    known = {"id": "77e1", "fingerprint": "9c1e0000deadbeef", "name": "state"}
    path = route.path.format(**known)
    body, headers = None, {}
    if method != "GET":
        body, headers = "{}", {"Content-Type": "application/json"}
    answer = visitor.ask(method, path, body, headers)
    is_refused = SAID in answer.body
    assert not is_refused or answer.status == 403
    assert answer.status != 500, (path, answer.body)
    return is_refused


@pytest.mark.parametrize("user", ["nobody", *ROLES])
def test_each_address_is_refused_without_its_role(as_user, user):
    visitor = as_user(user)
    roles = {user, "read"} if user != "nobody" else set()
    wrong = [
        (route.path, method)
        for route, method in Table.rows()
        if asked(visitor, route, method) == (Table.role(route, method) in roles)
    ]
    assert wrong == []


def test_an_unknown_address_is_refused_without_reading(as_user):
    visitor = as_user("nobody")
    for path in ("/dead-letters/other", "/api/dead-letters/other"):
        answer = visitor.get(path)
        assert (answer.status, SAID in answer.body) == (403, True)
    assert as_user("approve").get("/dead-letters/other").status == 404
    assert issubclass(Nothing, object)


def test_a_refusal_names_the_role_in_the_page_and_in_rest(as_user, store):
    visitor = as_user("triage")
    page = visitor.post("/dead-letters/letters/77e1/redrive", {"why": "x"})
    assert (page.status, "the role act in dlq_roles" in page.text) == (403, True)
    answer = visitor.ask(
        "POST", "/api/dead-letters/delete", '{"id": "77e1"}', {"Content-Type": "application/json"}
    )
    assert (answer.status, "the role erase in dlq_roles" in answer.body) == (403, True)
    assert store.letters.get("77e1").state.value == "dead"


#: A button or a link of each act, by the pages that have them.
BUTTONS = {
    "/dead-letters/letters/77e1": {
        "redrive": "dlq-redrive", "discard": "dlq-discard", "edit": "dlq-edit", "delete": "dlq-delete",
    },
    "/dead-letters/groups/9c1e0000deadbeef": {
        "redrive": "dlq-redrive", "discard": "dlq-discard", "resolve": "dlq-resolve",
        "ignore": "dlq-ignoring",
    },
}  # fmt: skip

#: Words on the pages of lists, by the act of the button.
LISTED = {
    "/dead-letters/letters": {
        "redrive": "Redrive selected", "discard": "Discard all that match", "delete": "Delete selected",
    },
    "/dead-letters/groups": {"redrive": ">Redrive<", "resolve": ">Resolve<"},
}  # fmt: skip


@pytest.mark.parametrize("user", ROLES)
def test_pages_show_the_buttons_that_are_not_refused(as_user, user):
    visitor = as_user(user)
    for path, buttons in BUTTONS.items():
        page = visitor.get(path)
        shown = {act for act, id_ in buttons.items() if f'id="{id_}"' in page.body}
        assert shown == {act for act in buttons if ROLE_OF[act] == user}
    for path, words in LISTED.items():
        page = visitor.get(path)
        shown = {act for act, word in words.items() if word in page.body}
        assert shown == {act for act in words if ROLE_OF[act] == user}
        assert page.status == 200


def test_a_user_with_two_roles_does_both(app, visit, three, store):
    app.conf.dlq_roles = {"triage": ["ann"], "erase": ["*"]}
    visitor = visit(basic_auth=["ann:secret"])
    visitor.log_in("ann", "secret")
    page = visitor.get("/dead-letters/letters/77e1")
    assert page.find("a", id="dlq-delete")
    assert page.find("button", id="dlq-redrive") == []
    given = {**dict(page.form("/dead-letters/letters/77e1/discard")), "why": "test"}
    assert visitor.post("/dead-letters/letters/77e1/discard", given).status == 303
    assert store.letters.get("77e1").closed_by == "ann (flower)"


def test_a_domain_is_that_of_the_address_from_oauth(app, visit, three):
    app.conf.dlq_roles = {"read": ["@example.com"]}
    visitor = visit(auth="ann@example.com|ann@example.com.evil")
    for address, status in (("ann@example.com", 200), ("ann@example.com.evil", 403)):
        visitor.log_in_as(address)
        assert visitor.get("/dead-letters/letters").status == status


def test_a_flower_without_authentication_is_for_readers(app, visit, three, monkeypatch):
    monkeypatch.setenv("FLOWER_UNAUTHENTICATED_API", "true")
    app.conf.dlq_roles = {"read": ["*"], "erase": ["*"]}
    visitor = visit()
    assert visitor.get("/dead-letters/letters").status == 200
    assert visitor.post("/dead-letters/delete", {}).status == 403


def test_roles_that_cannot_be_read_let_no_one_do_anything(app, visit):
    app.conf.dlq_roles = {"act": ["group:payments"]}
    visitor = visit(basic_auth=["ann:secret"])
    visitor.log_in("ann", "secret")
    for path in ("/dead-letters/letters", "/dead-letters/redrive?task=mail", "/api/dead-letters"):
        answer = visitor.get(path)
        assert answer.status in (405, 503)
        assert "Flower knows no groups" in answer.body
