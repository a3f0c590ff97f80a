import pytest
from support.factories import T0, letter

from celery_dlq.model.states import State
from celery_dlq.store.base import Filter


@pytest.fixture
def orders(store):
    """Two discarded letters and one that is dead."""
    store.letters.save([letter("a1"), letter("b1"), letter("c1", task="shop.mail")])
    store.closing.discard(Filter(ids=("a1", "b1")), who="ann", why="", now=T0)
    return store


def left(store) -> list[str]:
    found = store.letters.find(Filter(states=frozenset(State))).letters
    return sorted(one.task_id for one in found)


def test_closed_letters_are_deleted_for_ever(run, orders):
    result = run("delete", "--task", "charge", "--yes", "--why", "30 days")
    assert (result.exit_code, result.stdout) == (0, "Deleted 2 dead letters.\n")
    assert left(orders) == ["c1"]
    act = orders.audit.find(act="delete").rows[0]
    assert (act.count, act.why) == (2, "30 days")


def test_even_a_single_letter_needs_confirmation(run, orders, terminal):
    result = run("delete", "a1")
    assert result.exit_code == 2
    assert "Delete 1 dead letter for ever? There is no terminal to confirm on" in result.stderr
    terminal.sit_down()
    result = run("delete", "a1", answer="n\n")
    assert result.exit_code == 1
    assert "Nothing was changed." in result.stderr
    assert left(orders) == ["a1", "b1", "c1"]
    assert run("delete", "a1", answer="y\n").exit_code == 0
    assert left(orders) == ["b1", "c1"]


def test_an_open_letter_is_left_alone(run, orders):
    result = run("delete", "a1", "c1", "--yes")
    assert result.exit_code == 4
    assert "c1 is dead and left alone" in result.stderr
    assert left(orders) == ["b1", "c1"]
    result = run("delete", "c1", "--yes")
    assert result.exit_code == 1
    assert left(orders) == ["b1", "c1"]


def test_open_letters_are_deleted_with_a_reason_only(run, orders):
    result = run("delete", "c1", "--open", "--yes", "--why", "test data")
    assert (result.exit_code, result.stdout) == (0, "Deleted 1 dead letter.\n")
    assert left(orders) == ["a1", "b1"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "Give ids or filters, or --all"),
        (["--all", "a1"], "--all contradicts"),
        (["c1", "--open"], "needs a reason, because their messages are lost. Add --open and --why"),
        (["c1", "--state", "dead"], "Letters that are dead are open; delete them apart"),
        (
            ["a1", "--open", "--why", "x", "--state", "resolved"],
            "Letters that are resolved are closed; delete them apart",
        ),
        (["c1", "--state", "claimed"], "claimed"),
    ],
)
def test_an_invalid_command_line_is_a_usage_error(run, orders, args, message):
    result = run("delete", *args, "--yes")
    assert result.exit_code == 2
    assert message in result.stderr
    assert left(orders) == ["a1", "b1", "c1"]


def test_no_match_is_not_an_error(run, orders):
    result = run("delete", "--exception", "other", "--yes")
    assert (result.exit_code, result.stdout) == (0, "No dead letters match.\n")


def test_nothing_is_deleted_if_letters_were_closed_while_it_asks(run, orders, while_asked):
    orders.letters.save([letter("d1")])
    while_asked(lambda: orders.closing.discard(Filter(ids=("d1",)), who="bob", why="mine", now=T0))
    result = run("delete", "--task", "charge")
    assert (result.exit_code, result.stderr) == (
        1,
        "3 dead letters match now, more than you confirmed. Nothing was changed; run the command again.\n",
    )
    assert left(orders) == ["a1", "b1", "c1", "d1"]
