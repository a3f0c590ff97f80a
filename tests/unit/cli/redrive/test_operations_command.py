import json

import pytest
from support.factories import T0, attempt, letter

from celery_dlq.cli.redrive import running
from celery_dlq.cli.screens.operation import next_step
from celery_dlq.model.operation import Guard, OperationState, Orders, Pacing
from celery_dlq.redrive.operation import Operations as Redrives


@pytest.fixture
def two(store, operation, held):
    """A paused operation, and a running one of another operator that holds one letter of three."""
    store.letters.save([letter("a1"), letter("b1"), letter("b2")])
    orders = Orders(pacing=Pacing(canary=5, rate=50.0), guard=Guard(window=20))
    store.operations.create(operation(state=OperationState.PLANNED, orders=orders))
    store.operations.move(
        "3fa91111aaaa", OperationState.PAUSED, who="ada", cause="the broker\nwent", now=T0
    )
    return held(3).id


def states(store):
    return {one.id: one.state.value for one in store.operations.find()}


def test_operations_are_listed(run, read, two):
    out = run("operations", "list").stdout
    assert out.splitlines()[0].split()[:2] == ["OPERATION", "STATE"]
    assert "3fa91111aaaa  paused" in out
    assert "the broker\\nwent" in out
    found = read("operations", "list", "--state", "running")
    assert [one["id"] for one in found] == [two]
    assert (found[0]["who"], found[0]["planned"], found[0]["sent"], found[0]["left"]) == (
        "bob",
        3,
        0,
        3,
    )
    assert found[0]["wanted"]["states"] == ["dead"]


def test_an_empty_list(run, store):
    result = run("operations", "list")
    assert (result.exit_code, result.stdout) == (0, "No operations match.\n")


def test_one_in_full(run, store, two):
    store.claims.confirm(two, "other", {"a1": ""}, now=T0)
    store.claims.skip(two, "other", {"b1": "no\nqueue", "b2": "x" * 9}, now=T0)
    out = run("operations", "show", "77").stdout
    assert "Id       77aa00000000" in out
    assert "By       bob on desk:7" in out
    assert "Letters  dead letters that failed before 2026-11-21 13:00:00 UTC" in out
    assert "Planned       3" in out
    assert "Sent          1" in out
    assert "Skipped       2" in out
    assert "b1  shop.charge  skipped  no\\nqueue" in out
    assert "a1" not in out
    assert out.endswith(
        "Next: check again: celery dlq operations show 77aa00000000; "
        "to stop it: celery dlq operations pause 77aa00000000\n"
    )
    assert "a1  shop.charge  sent" in run("operations", "show", "77", "--state", "sent").stdout


def test_orders_that_are_not_the_default_are_shown(run, two):
    out = run("operations", "show", "3fa9").stdout
    assert "Orders\n  rate    50/s\n  canary  5\n  window  20\n" in out
    assert "Cause    the broker\\nwent" in out
    assert out.endswith(
        "Next: to continue: celery dlq operations resume 3fa91111aaaa; "
        "to end it: celery dlq operations cancel 3fa91111aaaa\n"
    )


def test_letters_come_page_by_page(run, read, store, two):
    store.claims.skip(two, "other", dict.fromkeys(["a1", "b1", "b2"], "no"), now=T0)
    first = run("operations", "show", two, "--limit", "2", "--format", "json")
    assert [one["task_id"] for one in json.loads(first.stdout)["sendings"]] == ["a1", "b1"]
    cursor = first.stderr.partition("--after ")[2].strip()
    rest = read("operations", "show", two, "--limit", "2", "--after", cursor)
    assert [(one["task_id"], one["why"]) for one in rest["sendings"]] == [("b2", "no")]


def test_a_terminal(run, two, terminal):
    terminal.sit_down(width=120)
    out = run("operations", "list").stdout
    assert "CREATED" in out
    assert "1h ago" in out
    assert run("operations", "show", "77").exit_code == 0


def test_pause_and_cancel(run, store, two):
    result = run("operations", "pause", "77")
    assert (result.exit_code, states(store)[two]) == (0, "paused")
    assert (
        "Paused operation 77aa00000000. Next: to continue: celery dlq operations resume"
        in result.stdout
    )
    result = run("operations", "cancel", "77")
    assert (result.exit_code, states(store)[two]) == (0, "cancelled")
    assert "Cancelled operation 77aa00000000; 3 letters not sent" in result.stdout


def test_a_finished_operation_cannot_be_paused(run, store, two):
    run("operations", "cancel", "77")
    result = run("operations", "pause", "77")
    assert result.exit_code == 1
    assert "77aa00000000" in result.stderr


@pytest.mark.parametrize("act", ["show", "pause", "resume", "cancel"])
def test_an_unknown_id(run, store, two, act):
    result = run("operations", act, "zz")
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: No operation has an id that begins with 'zz'; see: celery dlq operations list\n"
    )
    assert run("operations", act, "").exit_code == 2


def test_an_ambiguous_id(run, store, two, operation):
    store.operations.create(operation("3fa92222aaaa"))
    result = run("operations", "show", "3fa9")
    assert result.exit_code == 1
    assert "More than one id begins with '3fa9': 3fa91111aaaa, 3fa92222aaaa" in result.stderr


def test_resume_sends_what_is_left(run, store, two):
    run("operations", "cancel", "77")
    store.claims.release(two, "other", ["a1", "b1", "b2"])
    result = run("operations", "resume", "3fa9")
    assert result.exit_code == 0, result.stderr
    assert "Sent 3 of 3 dead letters: 3 awaited." in result.stdout
    assert states(store)["3fa91111aaaa"] == "done"


@pytest.fixture
def no_patience(monkeypatch):
    """A command does not wait until a worker takes what was left to it."""
    monkeypatch.setattr(running, "_ANSWER_S", 0)


@pytest.mark.usefixtures("no_patience")
def test_resume_by_a_worker(run, store, two):
    result = run("operations", "resume", "3fa9", "--detach")
    assert result.exit_code == 5
    assert "A worker will run operation 3fa91111aaaa." in result.stdout
    assert states(store)["3fa91111aaaa"] == "running"


def test_resume_is_shown_and_can_be_interrupted(run, two, operation, monkeypatch):
    asked = []

    def resume(_redrives, operation_id, *, who, why, on_progress, should_stop):
        asked.append((operation_id, bool(who), why, should_stop()))
        return operation(succeeded=2, skipped=1)

    monkeypatch.setattr(Redrives, "resume", resume)
    result = run("operations", "resume", "3fa9", "--why", "deployed")
    assert asked == [("3fa91111aaaa", True, "deployed", False)]
    assert result.exit_code == 4


def test_its_letters_are_listed(run, read, store, two):
    assert {row["task_id"] for row in read("list", "--operation", "77")} == {"a1", "b1", "b2"}
    assert read("list", "--operation", "77", "--state", "dead") == []
    assert run("list", "--operation", "zz").exit_code == 1


def test_skipped_letters_have_a_next_step(operation):
    done = operation(planned=2, succeeded=1, skipped=1)
    said = next_step(done, lambda *words: " ".join(words))
    assert said.endswith("redrive them: operations show 3fa91111aaaa --state skipped")


@pytest.mark.usefixtures("no_patience")
def test_a_reason_is_kept_with_the_act(run, read, store, operation):
    store.operations.create(operation("5555aaaa0000", OperationState.PLANNED))
    # No worker takes over what is resumed: 5.
    for act, options, status in (("pause", [], 0), ("resume", ["--detach"], 5), ("cancel", [], 0)):
        assert run("operations", act, "5555", "--why", f"to {act}", *options).exit_code == status
    found = read("audit")
    assert [(row["act"], row["why"]) for row in found[:3]] == [
        ("cancel", "to cancel"), ("resume", "to resume"), ("pause", "to pause"),
    ]  # fmt: skip
    assert store.operations.get("5555aaaa0000").cause.endswith(": to cancel")
    assert run("operations", "cancel", "5555", "--why", " ").exit_code == 2


def test_a_list_that_is_cut_off_says_so(run, two):
    cut = run("operations", "list", "--limit", "1", "--format", "jsonl")
    assert len(cut.stdout.splitlines()) == 1
    assert cut.stderr == "Only the newest 1 are shown; for more, raise --limit.\n"
    assert run("operations", "list", "--limit", "1", quiet=True).stderr == ""
    whole = run("operations", "list", "--limit", "2", "--format", "jsonl")
    assert (len(whole.stdout.splitlines()), whole.stderr) == (2, "")


def test_an_operation_is_failed_if_all_its_letters_failed_again(run, read, store, held, operation):
    store.letters.save([letter("a1")])
    this = held(1).id
    store.claims.confirm(this, "other", {"a1": ""}, now=T0, is_all=True)
    store.operations.move(this, OperationState.DONE, who="bob", now=T0)
    assert [one["word"] for one in read("operations", "list")] == ["done"]
    store.letters.save([letter("a1", attempt(redrive=1, minutes=90))])
    [found] = read("operations", "list")
    assert (found["state"], found["word"]) == ("done", "failed")
    assert f"{this}  failed" in run("operations", "list").stdout
    assert "State    failed" in run("operations", "show", this).stdout
