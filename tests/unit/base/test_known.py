import pytest

from celery_dlq import (
    AutoRedrive,
    DeadLetterQueue,
    Filter,
    Limits,
    Requirements,
    Route,
    Suspension,
    Timetable,
)
from celery_dlq.base.known import unknown_name
from celery_dlq.errors import FilterError, SettingsError

TASKS = ["shop.charge", "shop.ship", "mail.send"]


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("shop.chrge", " did you mean 'shop.charge'?"),
        ("chagre", " did you mean 'shop.charge'?"),
        ("SEND", " did you mean 'mail.send'?"),
        ("store.ship", " did you mean 'shop.ship'?"),
        ("xyzzy", ""),
        ("", ""),
    ],
)
def test_an_unknown_name_gets_near_names_and_a_list(given, near):
    assert unknown_name("a task", given, TASKS) == (
        f"{given!r} is not a task;{near} there are shop.charge, shop.ship, mail.send."
    )


def test_names_that_are_alike_are_all_offered_the_nearest_first():
    said = unknown_name("a queue", "mail1", ["mails", "pause", "mail2", "mail"])
    assert "did you mean 'mail' or 'mails' or 'mail2'?" in said


def test_the_first_of_many_names_are_listed_and_the_others_counted():
    said = unknown_name("a task", "x", (f"task{number:02}" for number in range(45)))
    assert said.endswith("task38, task39 and 5 more.")
    assert len(said) < 400


def test_an_empty_list_is_stated():
    assert unknown_name("a task", "x", []) == "'x' is not a task; none exists."


def test_a_long_name_is_shortened():
    assert len(unknown_name("a task", "x" * 100_000, TASKS)) < 200


@pytest.mark.parametrize(
    ("made", "error", "said"),
    [
        (lambda: Filter(tsk="charge"), FilterError, "Filter: 'tsk' .* did you mean 'task'"),
        (
            lambda: AutoRedrive("a", wher=1),
            SettingsError,
            "AutoRedrive 'a': 'wher' .* mean 'where'",
        ),
        (
            lambda: Route("a", exeption=""),
            SettingsError,
            "Route 'a': 'exeption' .* mean 'exception'",
        ),
        (lambda: Limits(per_leter=1), SettingsError, "Limits: 'per_leter' .* mean 'per_letter'"),
        (lambda: Suspension(of=1), SettingsError, "Suspension: 'of' .* there are success_below, "),
        (
            lambda: Requirements(circuit=1),
            SettingsError,
            "Requirements: 'circuit' .* closed_circuit, ",
        ),
        (lambda: Timetable(cronn=""), SettingsError, "Timetable: 'cronn' .* did you mean 'cron'"),
    ],
)
def test_an_unknown_field_in_a_setting_is_named_with_the_known_ones(made, error, said):
    with pytest.raises(error, match=said):
        made()


def test_so_is_an_unknown_argument_of_a_handler(shop_app):
    with pytest.raises(SettingsError, match=r"@handler: 'wher' .* did you mean 'where'"):
        DeadLetterQueue.of(shop_app).handler(wher=Filter(task="charge"))
