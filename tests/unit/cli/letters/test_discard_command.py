import pytest
from support.factories import T0, attempt, letter, parking

from celery_dlq.cli import session
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter


@pytest.fixture
def orders(store):
    store.letters.save([letter("a1"), letter("b1"), letter("b2", task="shop.mail")])
    return ["a1", "b1", "b2"]


def discarded(store):
    return {
        item.task_id
        for item in store.letters.find(Filter(states=frozenset({State.DISCARDED}))).letters
    }


def test_a_discard_records_who_and_why(run, orders, store, monkeypatch):
    monkeypatch.setattr(session.getpass, "getuser", lambda: "ada")
    result = run("discard", "a", "--why", "test order")
    assert (result.exit_code, result.stdout) == (
        0,
        "Discarded 1 dead letter. To reopen it: celery dlq discard --undo a1\n",
    )
    found = store.letters.get("a1")
    assert (found.state, found.closed_by, found.closed_reason) == (
        State.DISCARDED,
        "ada",
        "test order",
    )


def test_an_operator_without_a_name_is_known_by_number(run, orders, store, monkeypatch):
    def no_name():
        raise KeyError("getpwuid(): uid not found: 1000")

    monkeypatch.setattr(session.getpass, "getuser", no_name)
    monkeypatch.setattr(session.os, "getuid", lambda: 1000)
    run("discard", "a1", "--why", "x")
    assert store.letters.get("a1").closed_by == "uid 1000"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["a1"], "--why"),
        (["a1", "--why", " "], "'--why': it is empty"),
        (["--why", "x"], "Give ids or filters, or --all"),
        (["--all", "a1", "--why", "x"], "--all contradicts"),
        (["--state", "claimed", "--why", "x"], "claimed"),
        (["--limit", "1", "--why", "x"], "--limit"),
    ],
)
def test_an_invalid_command_line_is_a_usage_error(run, orders, store, args, message):
    result = run("discard", *args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert discarded(store) == set()


def test_many_letters_need_confirmation(run, orders, store):
    result = run("discard", "--task", "charge", "--why", "x")
    assert result.exit_code == 2
    assert "Discard 2 dead letters? There is no terminal to confirm on; add --yes." in result.stderr
    result = run("discard", "--task", "charge", "--why", "x", "--yes")
    assert result.exit_code == 0
    assert (
        "Discarded 2 dead letters. To reopen one: celery dlq discard --undo ID\n" in result.stdout
    )
    assert discarded(store) == {"a1", "b1"}


def test_a_terminal_shows_examples_and_asks(run, orders, store, terminal):
    store.letters.save([letter(f"c{number:02}") for number in range(20)])
    terminal.sit_down()
    result = run("discard", "--all", "--why", "x", answer="n\n")
    assert result.exit_code == 1
    assert "… and 13 dead letters more" in result.stdout
    assert "Discard 23 dead letters? [y/N]" in result.stderr
    assert "Nothing was changed." in result.stderr
    assert discarded(store) == set()
    assert run("discard", "--all", "--why", "x", answer="y\n").exit_code == 0
    assert len(discarded(store)) == 23


def test_nothing_matches(run, orders):
    result = run("discard", "--task", "charge", "--until", "1970-01-02", "--why", "x")
    assert (result.exit_code, result.stdout) == (0, "No dead letters match.\n")


def test_an_already_closed_letter_is_named(run, orders, store):
    run("discard", "a1", "--why", "x")
    result = run("discard", "a1", "--why", "x")
    assert result.exit_code == 1
    assert "a1 is discarded and left alone" in result.stderr
    result = run("discard", "a1", "b1", "--why", "x")
    assert result.exit_code == 4
    assert discarded(store) == {"a1", "b1"}


def test_undiscard_one_and_all(run, orders, store):
    run("discard", "--all", "--why", "x", "--yes")
    result = run("discard", "--undo", "b2")
    assert (result.exit_code, result.stdout) == (
        0,
        "Reopened 1 dead letter. See: celery dlq list\n",
    )
    assert discarded(store) == {"a1", "b1"}
    assert run("discard", "--undo", "--all").exit_code == 2
    assert run("discard", "--undo", "--all", "--yes").exit_code == 0
    assert discarded(store) == set()


def test_a_dry_run_shows_the_letters_and_changes_nothing(run, orders, store):
    result = run("discard", "--all", "--why", "x", "--dry-run")
    assert result.exit_code == 0
    assert "a1" in result.stdout
    assert result.stdout.endswith(
        "Discard 3 dead letters? This is a dry run; nothing was changed.\n"
    )
    assert discarded(store) == set()


def test_the_letters_of_an_operation(run, orders, store):
    result = run("redrive", "a1")
    operation = store.operations.find()[0].id
    assert result.exit_code == 0
    told = run("discard", "--operation", operation[:6], "--state", "redriven", "--why", "x")
    assert told.exit_code == 0, told.stderr
    assert discarded(store) == {"a1"}
    assert run("discard", "--undo", "--operation", operation).exit_code == 0
    assert discarded(store) == set()


def test_a_reason_is_needed_only_to_discard(run, orders, store):
    result = run("discard", "a1")
    assert (result.exit_code, discarded(store)) == (2, set())
    assert "add: --why TEXT" in result.stderr
    assert run("discard", "--undo", "a1", "--why", "x").exit_code == 2


def test_undiscard_of_an_open_letter(run, orders):
    result = run("discard", "--undo", "a1")
    assert result.exit_code == 1
    assert "a1 is dead and left alone" in result.stderr
    assert run("discard", "--undo", "--all").stdout == "No dead letters match.\n"
    assert run("discard", "--undo").exit_code == 2
    assert run("discard", "--undo", "--state", "dead").exit_code == 2


def test_several_ids_are_written_out_to_reopen_them(run, orders):
    result = run("discard", "b1", "a1", "--why", "x", "--yes")
    assert (
        result.stdout
        == "Discarded 2 dead letters. To reopen them: celery dlq discard --undo b1 a1\n"
    )


def test_more_than_ten_ids_are_not_written_out(run, store):
    many = [f"c{number:02}" for number in range(11)]
    store.letters.save([letter(name) for name in many])
    result = run("discard", *many, "--why", "x", "--yes")
    assert (
        result.stdout == "Discarded 11 dead letters. To reopen one: celery dlq discard --undo ID\n"
    )


def test_a_letter_that_another_person_has_discarded_is_not_among_those_to_reopen(
    run, orders, store
):
    store.closing.discard(Filter(ids=("a1",)), who="bob", why="mine", now=T0)
    result = run("discard", "a1", "b1", "--why", "x")
    assert result.stdout == "Discarded 1 dead letter. To reopen it: celery dlq discard --undo b1\n"


def test_a_letter_that_fails_while_it_asks_is_not_discarded(run, orders, store, while_asked):
    while_asked(lambda: store.letters.save([letter("late", attempt(minutes=61))]))
    result = run("discard", "--task", "charge", "--why", "x")
    assert result.exit_code == 0, result.stderr
    assert discarded(store) == {"a1", "b1"}
    assert store.letters.get("late").state is State.DEAD


def test_a_letter_of_a_worker_whose_clock_is_ahead_is_discarded_too(run, orders, store):
    store.letters.save([letter("ahead", attempt(minutes=61))])
    assert run("discard", "--task", "charge", "--why", "x", "--yes").exit_code == 0
    assert discarded(store) == {"a1", "ahead", "b1"}


def test_nothing_is_discarded_if_more_letters_match_after_the_answer(
    run, orders, store, while_asked
):
    run("discard", "a1", "--why", "x")
    while_asked(lambda: store.closing.undiscard(Filter(ids=("a1",)), who="bob", now=T0))
    result = run("discard", "--all", "--why", "x")
    assert result.exit_code == 1
    assert (
        result.stderr
        == "3 dead letters match now, more than you confirmed. Nothing was changed; run the command again.\n"
    )
    assert discarded(store) == set()


def test_retries_that_are_being_sent_are_not_discarded(run, store):
    store.parked.park([parking("p1", -1)], now=T0)
    held = store.leases.take("upkeep", holder="worker", seconds=60.0)
    # Due now by the store's own clock.
    store.parked.make_due(Filter(), place="here", who="bob", now=T0)
    assert store.parked.take_due(held, "here", limit=1, hold_s=60.0)
    result = run("discard", "p1", "--state", "parked", "--why", "late")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Nothing was discarded, because the letters are being sent" in result.stderr
