"""Ready ticket handlers in the real engine: chosen, sent, called and carried out."""

from __future__ import annotations

import functools

import pytest
from sqlalchemy import update
from support.factories import T0, attempt, letter
from support.servers.ticket_systems import TOKEN, ticket_systems

from celery_dlq import Filter, Leave
from celery_dlq.errors import SettingsError
from celery_dlq.model.handling import HandlingState
from celery_dlq.store.database import tables
from celery_dlq.tickets import GitHubIssues

GROUP, OTHER = "9c1e0000deadbeef", "aaaa0000deadbeef"
HERE = {"where": Filter(task="charge"), "once_per_group": True}


@pytest.fixture
def systems():
    with ticket_systems() as found:
        yield found


@pytest.fixture
def github(systems):
    return lambda **more: GitHubIssues("acme/shop", **{"token": TOKEN, "url": systems.url, **more})


def let_pass(store, **columns):
    change = update(tables.handling).values(columns)
    store.database.write(lambda connection: connection.execute(change))


def errors(store):
    return {row.error for row in store.automations.find(limit=500).rows if row.error}


def ticket_of(store, fingerprint=GROUP):
    [ticket] = store.tickets.of_groups([fingerprint])[fingerprint]
    return ticket


def test_1_000_letters_of_one_group_open_one_ticket(handling, dlq, store, systems, github):
    dlq.handler(name="github", **HERE)(github())
    store.letters.save([letter(f"a{number:03}") for number in range(1_000)])
    store.letters.save([letter("b", fingerprint=OTHER)])
    assert handling.work_off() == 2
    assert len(systems.created) == len(systems.issues) == 2
    assert ticket_of(store).url == "https://github.test/acme/shop/issues/1"
    assert ticket_of(store).handler == "github"
    assert ticket_of(store, OTHER).url == "https://github.test/acme/shop/issues/2"
    assert handling.work_off() == 0


def test_a_worker_killed_between_creation_and_note_leads_to_no_second_ticket(
    handling, dlq, store, systems, github, monkeypatch
):
    dlq.handler(name="github", **HERE)(github())
    store.letters.save([letter("a"), letter("b", attempt(minutes=1))])
    handling.dispatch()
    [message] = handling.sent()

    class Killed(BaseException):
        pass

    def kill(*_args, **_options):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(type(store.automations), "end", kill)
        with pytest.raises(Killed):
            handling.run(message)
    assert len(systems.issues) == 1
    assert store.tickets.of_groups([GROUP]) == {}
    let_pass(store, due_at=T0)
    handling.work_off()
    assert len(systems.issues) == 1
    assert ticket_of(store).url == "https://github.test/acme/shop/issues/1"


def test_a_system_that_is_away_is_asked_again(handling, dlq, store, systems, github):
    dlq.handler(name="github", **HERE)(github())
    store.letters.save([letter("a")])
    systems.answers.append((503, {}, b"maintenance"))
    handling.work_off()
    [row] = store.automations.find().rows
    assert row.state is HandlingState.QUEUED
    assert "answered 503: maintenance" in row.error
    let_pass(store, due_at=T0)
    handling.work_off()
    assert ticket_of(store).url == "https://github.test/acme/shop/issues/1"


def test_a_refusal_is_not_repeated_and_shows_no_token(handling, dlq, store, systems, github):
    dlq.handler(name="github", **HERE)(github(token="wrong-token-Zq7"))
    store.letters.save([letter("a")])
    handling.work_off()
    [row] = store.automations.find().rows
    assert row.state is HandlingState.FAILED
    assert "answered 401" in row.error
    assert "Zq7" not in row.error
    assert len(systems.requests) == 1


@pytest.fixture
def pins_are_secret(shop_app):
    shop_app.conf.dlq_redact = ["pin"]


@pytest.mark.usefixtures("pins_are_secret")
def test_tickets_have_the_apps_own_list_of_secrets(handling, dlq, store, systems, github):
    dlq.handler(name="github", **HERE)(github())
    store.letters.save([letter("a", message="pin=4711", traceback="ValueError: pin=4711")])
    handling.work_off()
    [made] = systems.created
    assert made.told["title"].endswith(": pin=[redacted]")
    assert "\nValueError: pin=[redacted]\n" in made.told["body"]
    assert "4711" not in made.body.decode()


def test_a_ticket_handler_must_have_a_name(dlq, github):
    for function in (github(), functools.partial(lambda one: Leave())):
        with pytest.raises(SettingsError, match=r"has no name of its own; give one: @dlq.handler"):
            dlq.handler(**HERE)(function)
    assert dlq.handlers == {}


def test_a_ticket_handler_must_be_for_groups(dlq, github):
    with pytest.raises(
        SettingsError, match="GitHubIssues opens one ticket for each group; give once_per_group"
    ):
        dlq.handler(where=Filter(task="charge"), name="github")(github())
    assert dlq.handlers == {}


def test_two_different_definitions_need_two_names(dlq, github):
    dlq.handler(name="github", **HERE)(github())
    # As when a module is imported twice.
    dlq.handler(name="github", **HERE)(github())
    with pytest.raises(SettingsError, match="GitHubIssues has this name already; give"):
        dlq.handler(name="github", **HERE)(github(labels=("celery",)))
