"""Routes on the command line: the filter, the owner, and what the doctor says about them."""

from __future__ import annotations

import json

import pytest
from support.factories import attempt, letter

from celery_dlq import AutoRedrive, Filter, Route
from celery_dlq.cli.doctor.command import CHECKS
from celery_dlq.model.states import State


@pytest.fixture
def configured(app):
    """Set before the store reads the settings."""
    app.conf.dlq_routes = [Route("payments", task="shop.*", owner="team-payments")]


@pytest.fixture
def routed(configured, store):
    """Letters of a route, of a route that the settings no longer have, and of none."""
    store.letters.save(
        [
            letter("aaaa1111", attempt(minutes=1), route="payments"),
            letter("bbbb2222", attempt(minutes=2), route="old", fingerprint="b" * 16),
            letter("cccc3333", attempt(minutes=3), fingerprint="c" * 16),
        ]
    )


@pytest.fixture
def as_json(run):
    def read(*args):
        return json.loads(run(*args, "--format", "json").stdout)

    return read


@pytest.mark.usefixtures("routed")
class TestLetters:
    def test_a_list_has_the_route_and_its_owner(self, as_json):
        assert [(row["route"], row["owner"]) for row in as_json("list")] == [
            ("", ""), ("old", ""), ("payments", "team-payments"),
        ]  # fmt: skip

    @pytest.mark.parametrize(("name", "task_id"), [("payments", "aaaa1111"), ("old", "bbbb2222")])
    def test_a_list_is_narrowed_by_a_route(self, as_json, name, task_id):
        assert [row["task_id"] for row in as_json("list", "--route", name)] == [task_id]

    def test_a_misspelt_route_is_an_error_with_the_right_one(self, run):
        result = run("list", "--route", "paymnets")
        assert result.exit_code == 1
        assert "'paymnets' is not a route of dlq_routes or of a letter" in result.stderr
        assert "did you mean 'payments'?" in result.stderr
        assert "old" in result.stderr

    def test_an_act_on_a_misspelt_route_changes_nothing(self, run, store):
        result = run("discard", "--route", "paymnets", "--yes", "--why", "x")
        assert result.exit_code == 1
        assert store.counts.letters(Filter()) == 3

    def test_an_act_takes_the_letters_of_a_route(self, run, store):
        assert run("discard", "--route", "payments", "--yes", "--why", "x").exit_code == 0
        assert store.letters.get("aaaa1111").state is State.DISCARDED
        assert store.counts.letters(Filter()) == 2

    def test_a_wide_terminal_has_room_for_the_route(self, run, terminal):
        terminal.sit_down(width=160)
        assert "ROUTE" in run("list").stdout
        terminal.sit_down(width=120)
        assert "ROUTE" not in run("list").stdout

    def test_one_letter_is_shown_with_its_route_and_owner(self, run, as_json):
        lines = [line.split() for line in run("show", "aaaa").stdout.splitlines()]
        assert ["Route", "payments"] in lines
        assert ["Owner", "of", "the", "route", "team-payments"] in lines
        assert as_json("show", "aaaa")["owner"] == "team-payments"
        assert "Owner" not in run("show", "bbbb").stdout

    def test_a_new_owner_takes_effect_at_once(self, app, as_json, queue):
        app.conf.dlq_routes = [Route("payments", task="shop.*", owner="ann")]
        vars(queue).pop("_read_settings", None)
        vars(queue).pop("settings", None)
        assert as_json("show", "aaaa")["owner"] == "ann"

    def test_groups_have_the_route_and_the_owner(self, as_json, run):
        rows = as_json("groups", "--route", "payments")
        assert [(row["route"], row["route_owner"], row["owner"]) for row in rows] == [
            ("payments", "team-payments", "")
        ]
        shown = run("groups", "show", "9c1e").stdout
        assert "team-payments" in shown
        run("groups", "assign", "9c1e", "ann")
        assert as_json("groups", "show", "9c1e")["owner"] == "ann"
        table = run("groups", "--route", "payments").stdout
        assert "ann" in table
        assert "team-payments" not in table

    def test_a_list_without_routes_has_no_column_for_them(self, run, terminal):
        terminal.sit_down(width=200)
        assert "ROUTE" not in run("list", "--group", "cccc").stdout


def findings(run) -> list[tuple[str, str]]:
    """The level and the text of what the doctor says about routes."""
    lines = [line.split(maxsplit=2) for line in run("doctor").stdout.splitlines()]
    return [(level, text) for check, level, text in lines[1:] if check == "routes"]


@pytest.mark.parametrize(
    ("route", "said"),
    [
        (Route("a", task="shop.charge"), ("ok", "1 route")),
        (Route("a", task="charge*"), ("ok", "1 route")),
        (Route("a", task="celery.starmap"), ("ok", "1 route")),
        (Route("a", reason="timeout"), ("ok", "1 route")),
        (Route("a", task="gone.task", reason="unknown_task"), ("ok", "1 route")),
        (
            Route("a", task=("shop.charge", "shop.chrage")),
            ("warning", "route a: this app has no task 'shop.chrage'; did you mean 'shop.charge'?"),
        ),
        (
            Route("a", task="bank.*"),
            (
                "warning",
                "route a: this app has no task 'bank.*'; correct the name, or remove the route",
            ),
        ),
    ],
)
def test_the_doctor_names_routes_whose_task_the_app_does_not_have(app, run, route, said):
    app.conf.dlq_routes = [route]
    assert findings(run) == [said]


def test_the_doctor_names_automatic_redrives_of_unknown_routes(app, run):
    app.conf.dlq_routes = [Route("payments", task="charge")]
    app.conf.dlq_auto_redrive = [
        AutoRedrive("good", where=Filter(route="payments")),
        AutoRedrive("bad", where=Filter(route="paymnets")),
    ]
    [(level, text)] = findings(run)
    assert level == "warning"
    assert text.startswith(
        "automatic redrive bad takes letters of route 'paymnets', which dlq_routes does not have"
    )


def test_the_doctor_says_nothing_about_routes_without_any(run):
    assert "routes" in {name for name, *_ in CHECKS}
    assert findings(run) == []


def test_a_command_refuses_two_routes_of_one_name(app, run):
    app.conf.dlq_routes = [Route("payments", task="a"), Route("payments", task="b")]
    result = run("list")
    assert result.exit_code != 0
    assert "dlq_routes = [Route('payments'), Route('payments')]" in " ".join(result.stderr.split())
