from __future__ import annotations

import pytest
from support.factories import attempt, letter

from celery_dlq.store.letters.counting import Counts


def checked(run, *args) -> tuple[int, str]:
    """The status and the only line."""
    result = run("check", *args)
    [line] = result.stdout.splitlines()
    return result.exit_code, line


# The present is T0 + 60 minutes; of the three letters one failed 50, 40 and 30 minutes ago each.
@pytest.mark.parametrize(
    ("args", "status", "line"),
    [
        (["--max-depth", 3], 0, "DLQ OK - 3 letters | depth=3;;3;0"),
        (["--max-depth", 2], 2, "DLQ CRITICAL - 3 letters (critical) | depth=3;;2;0"),
        (
            ["--max-depth", 0, "--task", "mail", "--until", "1970-01-02"],
            0,
            "DLQ OK - 0 letters | depth=0;;0;0",
        ),
        (["--max-age", "1h"], 0, "DLQ OK - the oldest has waited 50m | age=3000s;;3600;0"),
        (
            ["--max-age", "40m", "--task", "charge"],
            2,
            "DLQ CRITICAL - the oldest has waited 50m (critical) | age=3000s;;2400;0",
        ),
        (
            ["--max-age", "1s", "--exception", "none"],
            0,
            "DLQ OK - none waiting | age=0s;;1;0",
        ),
        (
            ["--max-rate", "10/m", "--window", "60m"],
            0,
            "DLQ OK - 0.05 arrive per minute | arrivals_per_minute=0.05;;10;0",
        ),
        (
            ["--max-rate", "1/h", "--window", "1h", "--exception", "ValueError"],
            2,
            "DLQ CRITICAL - 0.0333 arrive per minute (critical) | "
            "arrivals_per_minute=0.033333;;0.016667;0",
        ),
        (
            ["--max-rate", "1/h"],
            0,
            "DLQ OK - 0 arrive per minute | arrivals_per_minute=0;;0.016667;0",
        ),
        (
            ["--max-depth", 9, "--max-age", "1m", "--max-rate", "1/h", "--window", "1h"],
            2,
            "DLQ CRITICAL - 3 letters, the oldest has waited 50m (critical), 0.05 arrive per minute "
            "(critical) | depth=3;;9;0 age=3000s;;60;0 arrivals_per_minute=0.05;;0.016667;0",
        ),
    ],
)
def test_the_worst_limit_gives_the_status(run, three, args, status, line):
    assert checked(run, *args) == (status, line)


def test_a_letter_of_the_current_minute_is_not_counted_yet(run, store):
    store.letters.save([letter("new", attempt(minutes=60))])
    assert checked(run, "--max-rate", "1/h")[0] == 0


def test_an_age_of_weeks_is_written_in_digits(run, store):
    store.letters.save([letter("old", attempt(minutes=60 - 20 * 24 * 60))])
    assert checked(run, "--max-age", "30d") == (
        0,
        "DLQ OK - the oldest has waited 20d | age=1728000s;;2592000;0",
    )


def test_more_than_a_million_letters_are_written_in_digits(run, store, monkeypatch):
    monkeypatch.setattr(Counts, "letters", lambda _self, _wanted: 1_234_567)
    assert checked(run, "--max-depth", 2_000_000) == (
        0,
        "DLQ OK - 1,234,567 letters | depth=1234567;;2000000;0",
    )


def test_a_workers_clock_ahead_gives_no_negative_age(run, store):
    store.letters.save([letter("ahead", attempt(minutes=90))])
    assert checked(run, "--max-age", "1h")[1].endswith("age=0s;;3600;0")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "Give a limit: --max-depth, --max-age or --max-rate."),
        (["--max-depth", "-1"], "is not a number of letters"),
        (["--max-depth", "many"], "is not a number of letters"),
        (["--max-age", "soon"], "is not a duration"),
        (["--max-rate", "fast"], "is not a rate"),
        (["--no-such-option"], "--no-such-option"),
        (["--max-depth", 3, "--route", " "], "'--route': it is empty"),
        (["--max-depth", 3, "--since", "1h", "--until", "2h"], "is not before"),
        (["--max-rate", "1/m", "--reason", "lost"], "Arrivals are not kept by reason"),
        (["--max-depth", 3, "--state", "gone"], "gone"),
    ],
)
def test_an_invalid_command_line_is_unknown_and_not_critical(run, store, args, said):
    status, line = checked(run, *args)
    assert status == 3
    assert line.startswith("DLQ UNKNOWN - ")
    assert said in line


@pytest.mark.parametrize(
    ("args", "status", "begin"),
    [([], 3, "DLQ UNKNOWN - "), (["--store-down", "critical"], 2, "DLQ CRITICAL - ")],
)
def test_a_store_that_does_not_answer(run, app, args, status, begin):
    app.conf.dlq_store_url = "postgresql+psycopg://nobody@127.0.0.1:1/none"
    app.conf.dlq_store_timeout = 0.5
    found = checked(run, "--max-depth", 3, *args)
    assert found[0] == status
    assert found[1].startswith(begin)


def test_a_wrong_setting_is_unknown(run, app):
    app.conf.dlq_max_attempts = 0
    status, line = checked(run, "--max-depth", 3, "--store-down", "critical")
    assert (status, "dlq_max_attempts" in line) == (3, True)


def test_an_unexpected_error_is_unknown_and_one_line(run, store, monkeypatch):
    def fail(self, wanted):
        raise RuntimeError("one\ntwo | three")

    monkeypatch.setattr(Counts, "letters", fail)
    assert checked(run, "--max-depth", 3) == (3, "DLQ UNKNOWN - one two / three")


def test_help_exits_with_0(run):
    result = run("check", "--help")
    assert result.exit_code == 0
    assert "0 OK, 2 CRITICAL, 3 UNKNOWN" in " ".join(result.stdout.split())
