"""Acts that wait for a second person, on the command line: it asks, lists, shows and refuses, and approves
nothing."""

from __future__ import annotations

import json
import re

import pytest

from celery_dlq import Approval, DLQTask, Filter
from celery_dlq.errors import RequestRefused
from celery_dlq.model.request import Login


@pytest.fixture
def configure(app, queue):
    """Changes settings, as if the process had begun with them."""

    def configure(**settings):
        app.conf.update(settings)
        for name in ("settings", "_read_settings", "redrives", "redrive_context"):
            vars(queue).pop(name, None)

    return configure


@pytest.fixture
def asked(configure, run, three):
    """The id of a request for a redrive of all letters."""
    configure(dlq_approval=Approval(above=2))
    result = run("redrive", "--all", "--yes", "--why", "fixed")
    assert result.exit_code == 6, result.output
    [found] = re.findall(r"requests show ([0-9a-f]{12})", result.stderr)
    return found


def test_an_act_becomes_a_request_with_a_status_of_its_own(run, read, asked, store):
    assert store.operations.find() == []
    [one] = read("requests", "list")
    assert (one["id"], one["act"], one["state"], one["count"]) == (asked, "redrive", "open", 3)
    assert (one["proven"], one["needed"], one["why"]) == (False, 2, "fixed")
    assert asked in run("requests").stdout


def test_the_plan_says_so_before(configure, run, three):
    configure(dlq_approval=Approval(above=2))
    assert (
        "second person has to approve this (dlq_approval)"
        in run("redrive", "--all", "--dry-run").stdout
    )
    assert "second person" not in run("redrive", "77e1", "--dry-run").stdout


def test_fewer_letters_need_no_one(configure, run, three, store):
    configure(dlq_approval=Approval(above=2))
    assert run("delete", "77e1", "--open", "--why", "old", "--yes").exit_code == 0
    assert store.requests.find() == []


def test_show_names_the_letters(run, read, asked, three):
    shown = run("requests", "show", asked).stdout
    assert all(task_id in shown for task_id in three)
    assert "as no login has proved" in shown
    assert read("requests", "show", asked)["letters"] == sorted(three)


def test_it_approves_nothing_and_says_where_to(run, asked, queue):
    assert run("requests", "approve", asked).exit_code == 2
    assert "2 other logins, in Flower" in run("requests", "show", asked).stdout
    with pytest.raises(RequestRefused, match="No login proves the name"):
        queue.requests.approve(asked, who="root")
    assert [one.act for one in queue.store.audit.find().rows] == ["deny", "request"]
    said = run("audit").stdout
    assert "was not allowed to answer the request: redrive 3 letters" in said
    assert "asked to redrive 3 letters" in said


def test_it_refuses(run, asked):
    assert run("requests", "refuse", asked, "--why", "no").exit_code == 0
    again = run("requests", "refuse", asked)
    assert again.exit_code == 1
    assert "already refused by" in again.stderr
    assert "refused: redrive 3 letters" in run("audit").stdout


def test_what_was_left_out_is_shown(run, asked, queue, store, three):
    store.closing.discard(Filter(ids=("77e1",)), who="x", why="no", now=store.now())
    for name in ("bob", "eve"):
        queue.requests.approve(asked, who=Login(name))
    shown = run("requests", "show", asked).stdout
    assert "it is discarded now" in shown
    assert "left_out=1" in shown
    assert "approved by bob" in shown
    assert asked in run("operations").stdout


@pytest.mark.parametrize("command", ["show", "refuse"])
def test_an_unknown_request(run, three, command):
    result = run("requests", command, "nosuch")
    assert result.exit_code == 1
    assert "No request has this id" in result.stderr


def test_no_requests(run, read, three):
    assert run("requests").stdout == "There are no requests.\n"
    assert read("requests") == []


@pytest.mark.parametrize(
    "words",
    [
        ["redrive", "0d3f1111-aaaa"],
        ["delete", "77e1", "--open", "--why", "old", "--yes"],
        ["forget", "--task-id", "77e1", "--why", "asked", "--yes"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_line_that_only_proposes(configure, run, read, three, words):
    configure(dlq_cli_acts="propose")
    result = run(*words)
    assert result.exit_code == 6, result.output
    [one] = read("requests")
    assert (one["act"], one["count"]) == (words[0], 1)
    assert len(read("list")) == 3


def test_an_edit_is_proposed(configure, run, read, three, monkeypatch):
    configure(dlq_cli_acts="propose")
    monkeypatch.setattr(
        "celery_dlq.cli.letters.changes._edited", lambda text: text.replace("EUX", "EUR")
    )
    monkeypatch.setenv("EDITOR", "true")
    assert run("edit", "77e1").exit_code == 6
    [one] = read("requests")
    assert (one["act"], one["count"]) == ("edit", 1)
    assert "EUR" in json.dumps(one["shown"])
    shown = run("requests", "show", one["id"]).stdout
    assert '+ kwargs.currency = "EUR"' in [line.strip() for line in shown.splitlines()]
    assert "change=" not in shown


def test_a_task_that_is_never_redriven(app, run, store, three):
    app.tasks["shop.charge"].dlq_redrive = "never"

    @app.task(name="shop.other", base=DLQTask, shared=False)
    def other(*args, **kwargs): ...

    for more in ([], ["--to-task", "shop.other"]):
        result = run("redrive", "--task", "charge", "--yes", *more)
        assert result.exit_code == 1, result.output
        assert "letters of shop.charge are never redriven" in result.stderr
    assert "never redriven" in run("redrive", "--task", "charge", "--dry-run").stdout
    assert store.operations.find() == []


def test_a_task_with_an_option_needs_a_second_person(app, run, three):
    app.tasks["shop.charge"].dlq_redrive = "approve"
    assert isinstance(app.tasks["shop.charge"], DLQTask)
    result = run("redrive", "0d3f1111-aaaa")
    assert result.exit_code == 6
    assert "second person" in result.stderr
