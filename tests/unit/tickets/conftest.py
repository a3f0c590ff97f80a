"""Ticket handlers on a local server, and the letters that they get."""

from __future__ import annotations

import pytest
from support.factories import letter
from support.servers.ticket_systems import EMAIL, TOKEN, Systems, ticket_systems

from celery_dlq.base.redact import Redactor
from celery_dlq.model.handling import HandlerLetter
from celery_dlq.store.hiding import hide_letter
from celery_dlq.tickets import GitHubIssues, GitLabIssues, JiraIssues

#: The kinds of systems, by name.
MAKERS = {
    "github": lambda *, url, **more: GitHubIssues("acme/shop", **{"token": TOKEN, "url": url, **more}),
    "gitlab": lambda *, url, **more: GitLabIssues("acme/shop", **{"token": TOKEN, "url": url, **more}),
    "jira cloud": lambda *, url, **more: JiraIssues(
        "SHOP", **{"token": TOKEN, "url": url, "email": EMAIL, **more}
    ),
    "jira data center": lambda *, url, **more: JiraIssues("SHOP", **{"token": TOKEN, "url": url, **more}),
}  # fmt: skip


@pytest.fixture(scope="module")
def server():
    with ticket_systems() as found:
        yield found


@pytest.fixture
def systems(server):
    """The server of the module, as a new one: it has no tickets, and got no requests."""
    vars(server).update(vars(Systems(server.url)))
    yield server
    # A test may have replaced it.
    vars(server).pop("answer", None)


@pytest.fixture
def make(systems):
    """Makes a handler for a kind of system on the server."""
    return lambda kind, **more: MAKERS[kind](**{"url": systems.url, **more})


@pytest.fixture(params=MAKERS)
def kind(request):
    return request.param


@pytest.fixture
def given():
    """A letter as a handler gets it."""

    def given(stored=None, tickets=()):
        def read(_stored):
            raise AssertionError("the arguments are not asked for")

        redactor = Redactor()
        return HandlerLetter(
            stored or letter(), read, lambda one: hide_letter(one, redactor), tickets
        )

    return given
