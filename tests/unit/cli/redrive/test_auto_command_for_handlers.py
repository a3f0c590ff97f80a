import pytest
from support.auto_world import queue
from support.factories import T0, attempt, letter

from celery_dlq import Discard, Escalate, Filter, Leave, Redrive, Ticket
from celery_dlq.model.handling import HandlingState

GROUP = "9c1e0000deadbeef"


@pytest.fixture
def shop(request, store):
    """Two handlers, and two letters without a handling."""
    dlq = request.getfixturevalue("queue")

    @dlq.handler(where=Filter(task="charge"), version="2", per_hour=50)
    def in_euros(one):
        if one.task_id == "c3":
            raise KeyError("currency")
        return Redrive(kwargs={"currency": "EUR"})

    @dlq.handler(all=True, once_per_group=True, queue="slow")
    def ticketing(one):
        return Ticket("https://tickets/1")

    store.letters.save([letter("a1"), letter("b2", attempt(minutes=1))])
    return dlq


def handle(store, handler, verdict, task_id="a1", **end):
    """Let a handler end one letter with a verdict."""
    lease = store.leases.take("handlers", holder="me", seconds=600)
    queue(store, lease, handler.scope)
    for handling_id in store.automations.take_due(lease, handler.scope, limit=100, again_s=1):
        if store.automations.get(handling_id).task_id == task_id:
            started = store.automations.start(handling_id, worker="w", within_s=60)
            seen = store.letters.get(task_id)
            detail = {name: value for name, value in vars(verdict).items() if value is not None}
            store.automations.end(started, seen, verdict, detail=detail | end)


def test_handlers_are_listed_in_their_order_with_their_numbers(run, read, shop, store):
    handle(store, shop.handlers["in_euros"], Leave())
    out = run("auto", "list").stdout
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [
        ["in_euros", "handler"], ["ticketing", "handler"],
    ]  # fmt: skip
    assert "1 queued, 1 done" in out
    first, second = read("auto", "list")
    assert (first["name"], first["kind"], first["mode"]) == ("in_euros", "handler", None)
    assert (first["letters"]["done"], first["letters"]["queued"]) == (1, 1)
    assert second["letters"]["done"] == 0
    first, second = read("auto", "show", "in_euros"), read("auto", "show", "ticketing")
    assert (first["version"], first["where"], first["per_hour"]) == ("2", {"task": "charge"}, 50)
    assert (second["all"], second["once_per_group"], second["queue"]) == (True, True, "slow")


def test_one_handler_is_shown_with_its_latest_letters(run, read, shop, store):
    handle(store, shop.handlers["in_euros"], Redrive(), change='+ kwargs.currency = "EUR"')
    out = run("auto", "show", "in_euros").stdout
    assert "Version" in out
    assert "task=charge" in out
    assert 'Changed in a1\n  + kwargs.currency = "EUR"' in out
    found = read("auto", "show", "in_euros")
    assert [(one["task_id"], one["state"]) for one in found["latest"]] == [
        ("b2", "queued"), ("a1", "done"),
    ]  # fmt: skip
    assert "one letter of each" in run("auto", "show", "ticketing").stdout
    assert "It has had no letters yet." in run("auto", "show", "ticketing").stdout


@pytest.mark.parametrize("command", [("show",), ("try",)])
def test_an_unknown_handler_is_an_error_that_names_the_known_ones(run, shop, command):
    result = run("auto", *command, "in_euro")
    assert result.exit_code == 1
    assert "'in_euro' is not an automation of this app; did you mean 'in_euros'?" in result.stderr


def test_a_dry_run_shows_verdicts_and_diffs_and_changes_nothing(run, read, shop, store):
    before = store.letters.get("a1")
    result = run("auto", "try", "in_euros")
    assert result.exit_code == 0
    assert result.stdout.startswith("Called with 2 letters. Nothing was sent or changed.\n")
    assert (
        'Changed in a1\n  - kwargs.currency = "EUX"\n  + kwargs.currency = "EUR"' in result.stdout
    )
    assert store.letters.get("a1") == before
    assert store.automations.find().rows == ()
    assert store.edits.of_letter("a1") == []
    found = read("auto", "try", "in_euros", "--limit", "1")
    assert [(one["task_id"], one["verdict"]) for one in found] == [("a1", "redrive")]


def test_a_dry_run_of_chosen_letters_says_why_there_is_no_verdict(run, shop, store):
    store.letters.save([letter("c3"), letter("d4", task="shop.mail"), letter("e5")])
    store.closing.discard(Filter(ids=("e5",)), who="ann", why="no", now=T0)
    options = [word for name in ("a1", "c3", "d4", "e5") for word in ("--letter", name)]
    result = run("auto", "try", "in_euros", *options)
    assert result.exit_code == 4
    assert "3 calls ended without a verdict." in result.stdout
    assert "it raised KeyError: 'currency'" in result.stdout
    assert "the handler's where does not match it" in result.stdout
    assert "it is discarded; handlers get dead letters only" in result.stdout


def test_a_dry_run_leaves_out_letters_of_earlier_handlers(run, shop):
    result = run("auto", "try", "ticketing")
    assert (result.exit_code, result.stdout) == (0, "The handler would get no letters.\n")


def test_the_history_is_filtered_and_comes_page_by_page(run, read, shop, store):
    handle(store, shop.handlers["in_euros"], Discard("a duplicate"))
    rows = read("auto", "history", "--letter", "a1")
    assert [(row["name"], row["verdict"], row["detail"]) for row in rows] == [
        ("in_euros", "discard", {"reason": "a duplicate"}),
    ]  # fmt: skip
    assert rows[0]["ended_at"] is not None
    assert [row["task_id"] for row in read("auto", "history", "--state", "queued")] == ["b2"]
    page = run("auto", "history", "--limit", "1")
    assert "For the next page, add: --after " in page.stderr
    cursor = page.stderr.split("--after ")[1].strip()
    [rest] = read("auto", "history", "--limit", "1", "--after", cursor)
    assert rest["task_id"] == "a1"
    assert "reason=a duplicate" in run("auto", "history").stdout
    assert run("auto", "history", "--state", "gone").exit_code == 2


def test_secrets_in_errors_are_hidden(run, shop, store):
    handler = shop.handlers["in_euros"]
    lease = store.leases.take("handlers", holder="me", seconds=600)
    queue(store, lease, handler.scope, limit=1)
    [handling_id] = store.automations.take_due(lease, handler.scope, limit=1, again_s=1)
    started = store.automations.start(handling_id, worker="w", within_s=60)
    store.automations.fail(started, "password=hunter2 is wrong", again_s=None)
    out = run("auto", "history").stdout
    assert "hunter2" not in out
    assert HandlingState.FAILED.value in out


def test_a_letter_and_its_group_show_what_handlers_did(run, read, shop, store):
    handle(store, shop.handlers["ticketing"], Ticket("https://tickets/1"))
    assert "https://tickets/1" in run("show", "a1").stdout
    [handling] = read("show", "a1")["handlings"]
    assert (handling["name"], handling["verdict"]) == ("ticketing", "ticket")
    [ticket] = read("show", "b2")["tickets"]
    assert (ticket["kind"], ticket["url"], ticket["handler"]) == (
        "ticket", "https://tickets/1", "ticketing",
    )  # fmt: skip
    assert read("show", "b2")["handlings"] == []
    for command in (("groups",), ("groups", "show", GROUP)):
        assert "https://tickets/1" in run(*command).stdout
    assert read("groups")[0]["tickets"] == read("groups", "show", GROUP)["tickets"] == [ticket]


def test_an_escalation_is_shown_with_its_reason(run, shop, store):
    handle(store, shop.handlers["ticketing"], Escalate("ops", "no stock left"))
    out = run("groups", "show", GROUP).stdout
    assert "escalation  ops  no stock left  auto:ticketing" in out
    assert "escalate" in run("audit", "--letter", "a1").stdout


def test_groups_without_tickets_have_no_column_for_them(run, shop):
    assert "TICKET" not in run("groups").stdout


def test_the_history_of_an_unknown_handler_is_an_error_that_names_the_known_ones(run, shop):
    result = run("auto", "history", "in_euro")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "'in_euro' is not an automation of this app; did you mean 'in_euros'?" in result.stderr


def test_the_history_of_a_handler_without_handlings_is_empty(read, shop):
    assert read("auto", "history", "ticketing") == []


def test_the_history_of_a_handler_that_was_removed_is_kept(read, shop, store):
    handle(store, shop.handlers.pop("in_euros"), Leave())
    found = read("auto", "history", "in_euros", "--letter", "a1")
    assert [one["task_id"] for one in found] == ["a1"]
    assert read("auto", "history", "in_euros", "--state", "failed") == []


def test_a_handler_is_paused_and_resumed_and_has_no_timetable(run, read, shop):
    assert "in_euros is paused now." in run("auto", "pause", "in_euros").stdout
    assert [one["state"] for one in read("auto", "list")] == ["paused", "active"]
    assert "in_euros is active now." in run("auto", "resume", "in_euros").stdout
    assert "gets letters without a timetable" in run("auto", "run", "in_euros").stderr
