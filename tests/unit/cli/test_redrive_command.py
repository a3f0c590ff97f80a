import os
import signal
from datetime import timedelta

import pytest
from factories import T0, letter

from celery_dlq.errors import RedriveError
from celery_dlq.queue import DeadLetterQueue
from celery_dlq.redrive.plan import Progress, Report, Skipped
from celery_dlq.states import State
from celery_dlq.store.base import Filter


@pytest.fixture
def orders(store):
    """Three dead letters of the one registered task; returns their ids."""
    store.save([letter("a1"), letter("b1"), letter("b2", fingerprint="aaaa000000000000")])
    return ["a1", "b1", "b2"]


def report(**changes):
    values = {
        "planned": 3, "sent": 3, "skipped": (), "unsent": 0, "uncertain": 0,
        "interrupted": False, "error": None,
    }  # fmt: skip
    return Report(**{**values, **changes})


class FakeRedrive:
    """Stands in for ``DeadLetterQueue.redrive``: remembers what was asked, answers as told."""

    def __init__(self):
        self.asked = []
        self.answer = report()
        self.during = lambda on_progress, should_stop: None

    def __call__(self, wanted, **options):
        self.asked.append((wanted, options))
        self.during(options["on_progress"], options["should_stop"])
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture
def fake(monkeypatch):
    fake = FakeRedrive()
    monkeypatch.setattr(DeadLetterQueue, "redrive", staticmethod(fake))
    return fake


def states(store):
    every = store.find(Filter(states=frozenset(State))).letters
    return {item.task_id: item.state.value for item in every}


def test_sends_one_letter_without_asking(run, orders, store, app):
    result = run("redrive", "a")
    assert result.exit_code == 0, result.stderr
    assert "Sent 1 of 1 dead letter." in result.stdout
    assert "Outcomes: celery dlq list --state redriven" in result.stdout
    assert states(store) == {"a1": "redriven", "b1": "dead", "b2": "dead"}
    with app.connection_for_read() as connection:
        message = connection.SimpleQueue("celery").get_nowait()
        assert message.headers["id"] == "a1"


def test_sends_all_and_shows_the_plan_first(run, orders, store):
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 0, result.stderr
    assert "To send  3 dead letters" in result.stdout
    assert "shop.charge         3" in result.stdout
    assert "Sent 3 of 3 dead letters." in result.stdout
    assert set(states(store).values()) == {"redriven"}


def test_a_dry_run_changes_nothing(run, orders, store, fake):
    result = run("redrive", "--all", "--dry-run", "--rate", "6/m")
    assert result.exit_code == 0
    assert "To send      3 dead letters" in result.stdout
    assert "Takes about  30s" in result.stdout
    assert fake.asked == []
    assert set(states(store).values()) == {"dead"}


def test_options_reach_the_redrive(run, orders, fake):
    run("redrive", "--task", "charge", "--limit", "2", "--rate", "300/m", "--since", "2h", "--yes")
    ((wanted, options),) = fake.asked
    assert (wanted.task, options["limit"], options["rate"]) == ("charge", 2, 5.0)
    assert wanted.since == T0 - timedelta(hours=1)
    assert options["who"]


def test_ids_are_completed_and_named_once(run, orders, fake):
    run("redrive", "a", "a1", "b2", "--yes")
    assert fake.asked[0][0].ids == ("a1", "b2")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "Name ids or filters, or say --all"),
        (["--all", "a1"], "--all contradicts"),
        (["--all", "--task", "charge"], "--all contradicts"),
        (["--all", "--state", "redriven"], "--all contradicts"),
        (["--all", "--rate", "0"], "is no rate; write 50/s"),
        (["--all", "--rate", "fast"], "is no rate; write 50/s"),
        (["--all", "--limit", "0"], "not in the range"),
        (["--state", "resolved"], "resolved"),
        (["--queue", " ", "--since", "1d"], "--queue is empty"),
        (["--since", "1h", "--until", "1h"], "is not before"),
    ],
)
def test_nonsense_is_a_usage_error_and_sends_nothing(run, orders, fake, args, message):
    result = run("redrive", *args, "--yes")
    assert result.exit_code == 2
    assert message in result.stderr
    assert fake.asked == []


def test_many_letters_need_a_yes_where_nobody_can_be_asked(run, orders, fake):
    result = run("redrive", "--all")
    assert result.exit_code == 2
    assert "add --yes" in result.stderr
    assert fake.asked == []


@pytest.mark.parametrize(
    ("answer", "status", "asked"), [("y\n", 0, 1), ("n\n", 1, 0), ("\n", 1, 0), ("", 130, 0)]
)
def test_a_terminal_is_asked(run, orders, fake, terminal, answer, status, asked):
    terminal.sit_down(stderr=False)
    result = run("redrive", "--all", answer=answer)
    assert result.exit_code == status
    assert "Redrive 3 dead letters? [y/N]" in result.stderr
    assert "To send" in result.stdout
    assert len(fake.asked) == asked


def test_an_unknown_id_sends_nothing_of_the_others(run, orders, fake):
    result = run("redrive", "a1", "zzz", "--yes")
    assert result.exit_code == 1
    assert "begins with 'zzz'" in result.stderr
    assert fake.asked == []


def test_an_ambiguous_group_sends_nothing(run, store, fake):
    store.save([letter("a", fingerprint="9c1e1"), letter("b", fingerprint="9c1e2")])
    result = run("redrive", "--group", "9c1e", "--yes")
    assert result.exit_code == 1
    assert "More than one group begins with '9c1e': 9c1e1, 9c1e2" in result.stderr
    assert run("redrive", "--group", "9c1e1", "--yes").exit_code == 0
    assert len(fake.asked) == 1


def test_nothing_matches_a_filter(run, orders, fake):
    result = run("redrive", "--task", "other")
    assert (result.exit_code, result.stdout) == (0, "No dead letters match.\n")
    assert fake.asked == []


def test_a_letter_that_is_closed_is_named_and_the_others_are_sent(run, orders, store, fake):
    run("discard", "b1", "--why", "known")
    result = run("redrive", "a1", "b1", "--yes")
    assert result.exit_code == 1
    assert "b1 is discarded and left alone; see: celery dlq show b1" in result.stderr
    assert len(fake.asked) == 1
    result = run("redrive", "b1")
    assert result.exit_code == 1
    assert "Nothing was sent" in result.stderr
    assert len(fake.asked) == 1


def test_ids_that_do_not_pass_the_filters_are_a_failure(run, orders, fake):
    result = run("redrive", "a1", "--queue", "other")
    assert result.exit_code == 1
    assert "Nothing was sent" in result.stderr


def test_redriven_letters_are_taken_when_named(run, orders, store):
    assert run("redrive", "a1").exit_code == 0
    assert run("redrive", "a1").exit_code == 1
    result = run("redrive", "a1", "--state", "redriven")
    assert result.exit_code == 0
    assert store.get("a1").redrive_count == 2


def test_letters_in_other_hands_are_left_without_a_failure(run, orders, store):
    run("redrive", "--all", "--yes")
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 0
    assert "Nothing was sent. 3 claimed or redriven already" in result.stderr


def test_the_letters_of_a_killed_redrive_are_planned_with(run, orders, store):
    store.claim(Filter(), token="killed", lease_until=T0, limit=3, now=T0 - timedelta(minutes=5))
    assert "Sent 3 of 3 dead letters." in run("redrive", "--all", "--yes").stdout


def test_a_task_that_is_not_registered_is_told(run, store):
    store.save([letter("m1", task="shop.mail\x1b[2J")])
    result = run("redrive", "m1")
    assert result.exit_code == 1
    assert "Not sent: m1: task shop.mail\\x1b[2J is not registered in this app" in result.stderr
    assert "Nothing was sent." in result.stderr


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            {"sent": 2, "unsent": 1, "error": "the broker\nwent away"},
            "Error: the broker went away; run: celery dlq doctor",
        ),
        ({"sent": 1, "unsent": 2}, "2 were not sent and are as they were."),
        ({"sent": 2, "uncertain": 1}, "1 were handed over without the broker's word"),
        (
            {"sent": 2, "skipped": (Skipped(task_id="b2", task="t", why="no such queue"),)},
            "Not sent: b2: no such queue",
        ),
    ],
)
def test_a_part_is_no_success(run, orders, fake, answer, said):
    fake.answer = report(**answer)
    result = run("redrive", "--all", "--yes", quiet=True)
    assert result.exit_code == 1
    assert said in result.stderr
    assert f"Sent {answer['sent']} of 3 dead letters." in result.stderr


def test_quiet_says_nothing_of_a_success(run, orders, fake):
    result = run("redrive", "--all", "--yes", quiet=True)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_ctrl_c_stops_after_the_batch_and_tells_what_was_sent(run, orders, fake):
    stopped = []

    def during(on_progress, should_stop):
        stopped.append(should_stop())
        os.kill(os.getpid(), signal.SIGINT)
        stopped.append(should_stop())

    fake.during = during
    fake.answer = report(sent=1, unsent=2, interrupted=True)
    before = signal.getsignal(signal.SIGINT)
    result = run("redrive", "--all", "--yes")
    assert stopped == [False, True]
    assert result.exit_code == 130
    assert "Interrupted." in result.stderr
    assert "Sent 1 of 3 dead letters." in result.stderr
    assert "2 were not sent and are as they were." in result.stderr
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_stops_at_once_and_tells_how_far_it_came(run, orders, fake):
    def during(on_progress, should_stop):
        on_progress(Progress(total=3, sent=2, skipped=0, overtaken=0))
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the second Ctrl-C did not interrupt")

    fake.during = during
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 130
    assert "Sent 2 of 3 dead letters before the end." in result.stderr
    assert result.stderr.endswith("Interrupted.\n")


def test_an_error_on_the_way_tells_how_far_it_came(run, orders, fake):
    fake.during = lambda on_progress, _stop: on_progress(
        Progress(total=3, sent=1, skipped=0, overtaken=0)
    )
    fake.answer = RedriveError("The broker does not answer; check it.")
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 1
    assert result.stderr.endswith(
        "Sent 1 of 3 dead letters before the end.\nError: The broker does not answer; check it.\n"
    )


def test_tasks_that_cannot_be_imported_are_an_error(run, orders, app, fake):
    app.conf.imports = ["shop.no_such_module"]
    result = run("redrive", "a1")
    assert result.exit_code == 1
    assert "Error: The app's tasks cannot be imported: ModuleNotFoundError" in result.stderr
