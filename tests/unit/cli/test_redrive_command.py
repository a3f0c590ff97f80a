import os
import re
import signal
from dataclasses import replace
from datetime import timedelta

import pytest
from factories import T0, letter

from celery_dlq.cli import running
from celery_dlq.cli.session import Session
from celery_dlq.errors import StoreUnavailable
from celery_dlq.operation import OperationState, Orders, Pacing, Sending, SendingState
from celery_dlq.queue import DeadLetterQueue
from celery_dlq.redrive.plan import Progress
from celery_dlq.states import State
from celery_dlq.store.base import Filter, Rows
from celery_dlq.store.sql import SQLStore


@pytest.fixture
def orders(store):
    """Three dead letters of the one registered task; returns their ids."""
    store.save([letter("a1"), letter("b1"), letter("b2", fingerprint="aaaa000000000000")])
    return ["a1", "b1", "b2"]


class FakeRedrive:
    """Stands in for ``DeadLetterQueue.redrive``: remembers what was asked, answers as told."""

    def __init__(self, answer):
        self.asked = []
        self.answer = answer
        self.during = lambda on_progress, should_stop: None

    def __call__(self, wanted, **options):
        self.asked.append((wanted, options))
        if not options.get("detach"):
            self.during(options["on_progress"], options["should_stop"])
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture
def fake(monkeypatch, operation):
    fake = FakeRedrive(operation(sent=3))
    monkeypatch.setattr(DeadLetterQueue, "redrive", staticmethod(fake))
    return fake


def states(store):
    every = store.find(Filter(states=frozenset(State))).letters
    return {item.task_id: item.state.value for item in every}


def test_sends_one_letter_without_asking(run, orders, store, app):
    result = run("redrive", "a")
    assert result.exit_code == 0, result.stderr
    assert "Sent 1 of 1 dead letter: 1 awaited." in result.stdout
    assert "Next: outcomes are awaited; look again: celery dlq operations show" in result.stdout
    assert states(store) == {"a1": "redriven", "b1": "dead", "b2": "dead"}
    with app.connection_for_read() as connection:
        message = connection.SimpleQueue("celery").get_nowait()
        assert message.headers["id"] == "a1"


def test_sends_all_and_shows_the_plan_first(run, orders, store):
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 0, result.stderr
    assert "To send  3 dead letters" in result.stdout
    assert "shop.charge         3" in result.stdout
    assert "Sent 3 of 3 dead letters: 3 awaited." in result.stdout
    assert set(states(store).values()) == {"redriven"}


def test_a_dry_run_changes_nothing(run, orders, store, fake):
    result = run("redrive", "--all", "--dry-run", "--rate", "6/m")
    assert result.exit_code == 0
    assert "To send      3 dead letters" in result.stdout
    assert "Takes about  30s" in result.stdout
    assert fake.asked == []
    assert set(states(store).values()) == {"dead"}


def test_a_dry_run_names_reasons_and_changes(run, store, fake):
    store.save(
        [
            *(letter(f"a{number}", redrive_count=0) for number in range(7)),
            letter("m1", task="shop.mail"),
            letter("m2", task="shop.mail"),
        ]
    )
    out = run("redrive", "--all", "--dry-run", "--set", "kwargs.currency=USD").stdout
    assert "7 dead letters of 9 would be sent. Nothing was sent or changed." in out
    assert re.search(r"^ +2  m1 +task shop.mail is not registered in this app", out, re.MULTILINE)
    assert "LETTERS  CHANGED IN\n      7  kwargs.currency\n" in out
    assert out.count("Changed in a") == 5
    assert '+ kwargs.currency = "USD"' in out
    assert (fake.asked, set(states(store).values())) == ([], {"dead"})


def test_a_dry_run_keeps_to_the_limit_and_the_oldest(run, orders):
    out = run("redrive", "--all", "--dry-run", "--limit", "1", "--priority", "5").stdout
    assert "1 dead letter of 1 would be sent." in out


@pytest.mark.parametrize("option", ["--transform=no.such:thing", "--set=nonsense"])
def test_a_repair_that_makes_no_sense_is_a_usage_error(run, orders, fake, option):
    for more in (["--dry-run"], ["--yes"]):
        result = run("redrive", "--all", option, *more)
        assert result.exit_code == 2, result.stderr
        assert option.partition("=")[2].partition(":")[0] in result.stderr
    assert fake.asked == []


def test_options_reach_the_redrive(run, orders, fake):
    run("redrive", "--task", "charge", "--limit", "2", "--rate", "300/m", "--since", "2h", "--yes")
    ((wanted, options),) = fake.asked
    assert wanted.task == "charge"
    assert wanted.since == T0 - timedelta(hours=1)
    assert options["orders"] == Orders(pacing=Pacing(limit=2, rate=5.0))
    assert options["who"]


def test_ids_are_completed_and_named_once(run, orders, fake):
    run("redrive", "a", "a1", "b2", "--yes")
    assert fake.asked[0][0].ids == ("a1", "b2")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "Name ids or filters, or say --all"),
        (["--state", "dead"], "Name ids or filters, or say --all"),
        (["--all", "a1"], "--all contradicts"),
        (["--all", "--task", "charge"], "--all contradicts"),
        (["--all", "--state", "redriven"], "--all contradicts"),
        (["--all", "--rate", "0"], "is no rate; write 50/s"),
        (["--all", "--rate", "fast"], "is no rate; write 50/s"),
        (["--all", "--limit", "0"], "not in the range"),
        (["--all", "--canary", "4"], "4 is more than the 3 letters"),
        (["--all", "--detach", "--wait"], "--wait contradicts --detach"),
        (["--all", "--wait", "soon"], "is no length of time"),
        (["--all", "--to-task", "shop.chrage"], "did you mean 'shop.charge'?"),
        (["--all", "--to-task", "x\x1b[2J"], "no task 'x\\x1b[2J'; deploy or import it"),
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


def test_an_unknown_group_is_an_error_that_names_the_next_step(run, orders, fake):
    result = run("redrive", "--group", "typo", "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "No group has a fingerprint that begins with 'typo'" in result.stderr
    assert "dlq groups" in result.stderr
    assert fake.asked == []


def test_a_group_whose_letters_are_all_closed_is_known(run, store, fake):
    store.save([letter("a", fingerprint="9c1e1")])
    run("discard", "a", "--why", "known")
    result = run("redrive", "--group", "9c1e1", "--yes")
    assert (result.exit_code, result.stdout) == (0, "No dead letters match.\n")


def test_nothing_matches_a_filter(run, orders, fake):
    result = run("redrive", "--task", "other")
    assert (result.exit_code, result.stdout) == (0, "No dead letters match.\n")
    assert fake.asked == []


def test_a_letter_that_is_closed_is_named_and_the_others_are_sent(run, orders, store, fake):
    run("discard", "b1", "--why", "known")
    result = run("redrive", "a1", "b1", "--yes")
    assert result.exit_code == 4
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


def test_what_is_sent_again_while_its_outcome_is_awaited_may_run_twice(run, orders):
    said = "sent already, their outcome is awaited; sent again, they may run twice."
    assert said not in run("redrive", "--all", "--yes").stdout
    result = run("redrive", "--state", "redriven", "--dry-run")
    assert f"3 {said}" in " ".join(result.stdout.split())
    result = run("redrive", "--state", "redriven", "--yes")
    assert f"3 {said}" in " ".join(result.stdout.split())
    result = run("redrive", "a1", "--state", "redriven")
    assert f"Note: 1 {said}" in result.stderr


def test_only_the_letters_of_an_operation_are_sent_again(run, orders, store):
    run("redrive", "a1")
    [first] = store.operations()
    run("redrive", "b1", "b2", "--yes")
    result = run("redrive", "--state", "redriven", "--operation", first.id[:6])
    assert result.exit_code == 0, result.stderr
    assert [store.get(name).redrive_count for name in orders] == [2, 1, 1]


def test_an_operation_that_nobody_made_sends_nothing(run, orders, fake):
    for given in ("zz", ""):
        assert run("redrive", "--operation", given, "--yes").exit_code == 1
    assert fake.asked == []


def test_letters_in_other_hands_are_left_without_a_failure(run, orders, store):
    run("redrive", "--all", "--yes")
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 0
    assert "Nothing was sent. 3 claimed or redriven already" in result.stderr


def test_the_letters_of_a_killed_redrive_are_planned_with(run, orders, held):
    held(3, until=T0 + timedelta(minutes=1))
    assert "Sent 3 of 3 dead letters: 3 awaited." in run("redrive", "--all", "--yes").stdout


def test_a_task_that_is_not_registered_is_told(run, store):
    store.save([letter("m1", task="shop.mail\x1b[2J")])
    result = run("redrive", "m1")
    assert result.exit_code == 1
    assert "Not sent: m1: task shop.mail\\x1b[2J is not registered in this app" in result.stderr
    assert "Nothing was sent." in result.stderr


@pytest.mark.parametrize(
    ("counts", "status", "said"),
    [
        ({"sent": 1, "succeeded": 2}, 0, "Sent 3 of 3 dead letters: 2 succeeded, 1 awaited."),
        ({"succeeded": 2, "failed": 1}, 0, "3 dead letters: 2 succeeded, 1 failed again."),
        ({"succeeded": 2, "skipped": 1}, 4, "1 were skipped and are as they were."),
        ({"skipped": 3}, 1, "Sent 0 of 3 dead letters."),
        (
            {"succeeded": 2, "unknown": 1},
            0,
            "again those without an outcome: "
            "celery dlq redrive --state redriven --operation 3fa91111aaaa\n",
        ),
        (
            {"sent": 1, "succeeded": 1, "unknown": 1},
            0,
            "look again: celery dlq operations show 3fa9",
        ),
    ],
)
def test_what_was_not_sent_is_no_success_and_what_became_of_the_rest_is_told(
    run, orders, fake, operation, counts, status, said
):
    fake.answer = operation(**counts)
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == status, result.stderr
    assert said in (result.stderr if status else result.stdout)


def test_letters_that_were_not_sent_or_came_back_are_named(
    run, orders, fake, operation, monkeypatch
):
    skipped = Sending(
        operation="3fa9", task_id="b2", task="t", redrive=1, state=SendingState.SKIPPED,
        why="no\nqueue",
    )  # fmt: skip
    failed = replace(skipped, task_id="a1", state=SendingState.FAILED, why="KeyError: 'x'")
    monkeypatch.setattr(
        SQLStore, "sendings", lambda *_args, **_: Rows(rows=(failed, skipped), next="x")
    )
    fake.answer = operation(succeeded=1, skipped=1, failed=1)
    said = run("redrive", "--all", "--yes", quiet=True).stderr
    assert "Failed again: a1: KeyError: 'x'\nNot sent: b2: no\\nqueue\n" in said
    assert "… and more: celery dlq operations show 3fa91111aaaa" in said


def test_the_guard_says_why_it_stopped(run, orders, fake, operation):
    fake.answer = operation(
        state=OperationState.ABORTED, failed=2, cause="2 in a row came back: a1, b1"
    )
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 4
    assert "1 were not sent and are as they were." in result.stderr
    assert "Operation 3fa91111aaaa is aborted: 2 in a row came back: a1, b1" in result.stderr
    assert "Next: mend the cause" in result.stderr


def test_what_somebody_else_has_had_is_not_as_it_was(run, orders, fake, operation):
    fake.answer = operation(state=OperationState.DONE, succeeded=2)
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 4
    assert "1 were not dead any more when it came to them" in result.stderr
    assert "as they were" not in result.stderr
    assert "Next: nothing; the others:" in result.stderr


def test_what_keeps_it_from_going_on_pauses_it(run, orders, fake, operation):
    fake.answer = operation(
        state=OperationState.PAUSED, sent=1, sending=1, cause="the broker\nwent away"
    )
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 4
    assert "is paused: the broker\\nwent away" in result.stderr
    assert "1 may have been sent, without the broker's word" in result.stderr
    assert "Next: to go on: celery dlq operations resume 3fa91111aaaa" in result.stderr


def test_quiet_says_nothing_of_a_success(run, orders, fake):
    result = run("redrive", "--all", "--yes", quiet=True)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_detached_it_is_left_to_a_worker(run, orders, fake, operation):
    fake.answer = operation(state=OperationState.PLANNED, detached=True)
    result = run("redrive", "--all", "--yes", "--detach")
    assert result.exit_code == 0
    assert fake.asked[0][1]["detach"]
    assert result.stdout.endswith(
        "Operation 3fa91111aaaa of 3 dead letters is left to a worker. "
        "See: celery dlq operations show 3fa91111aaaa\n"
    )


def test_ctrl_c_ends_the_waiting_and_tells_what_is_awaited(
    run, orders, fake, operation, monkeypatch
):
    fake.answer = operation(state=OperationState.DONE, sent=3)

    def look(*_args):
        signal.raise_signal(signal.SIGINT)
        return fake.answer

    monkeypatch.setattr(SQLStore, "operation", look)
    result = run("redrive", "--all", "--yes", "--wait", "1m")
    assert result.exit_code == 130
    assert "Interrupted.\nSent 3 of 3 dead letters: 3 awaited." in result.stderr
    assert "Next: outcomes are awaited" in result.stderr


def test_waiting_makes_the_outcome_part_of_the_status(run, orders, fake, operation, monkeypatch):
    later = operation(succeeded=2, failed=1)
    monkeypatch.setattr(SQLStore, "operation", lambda *_: later)
    monkeypatch.setattr(running, "_LOOK_S", 0)
    assert run("redrive", "--all", "--yes").exit_code == 0
    result = run("redrive", "--all", "--yes", "--wait", "1m")
    assert result.exit_code == 4
    assert "2 succeeded, 1 failed again." in result.stderr


def test_of_two_operators_the_second_hears_of_the_first(run, orders, held, fake):
    held(2)
    result = run("redrive", "--all", "--yes")
    assert "To send  1 dead letter\n" in result.stdout
    assert "2 claimed or redriven already; left alone" in result.stdout
    assert "Operation 77aa00000000 of bob is running" in result.stderr


def test_ctrl_c_pauses_after_the_batch_and_says_how_to_go_on(run, orders, fake, operation):
    stopped = []

    def during(on_progress, should_stop):
        stopped.append(should_stop())
        os.kill(os.getpid(), signal.SIGINT)
        stopped.append(should_stop())

    fake.during = during
    fake.answer = operation(state=OperationState.PAUSED, sent=1)
    before = signal.getsignal(signal.SIGINT)
    result = run("redrive", "--all", "--yes")
    assert stopped == [False, True]
    assert result.exit_code == 130
    assert "Interrupted.\nSent 1 of 3 dead letters: 1 awaited.\n" in result.stderr
    assert "Operation 3fa91111aaaa is paused." in result.stderr
    assert "to go on: celery dlq operations resume 3fa91111aaaa" in result.stderr
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_after_the_last_letter_is_no_interruption(run, orders, fake):
    fake.during = lambda _progress, _stop: os.kill(os.getpid(), signal.SIGINT)
    assert run("redrive", "--all", "--yes").exit_code == 0


def test_a_second_ctrl_c_stops_at_once_and_tells_how_far_it_came(
    run, orders, fake, operation, monkeypatch
):
    paused = operation(state=OperationState.PAUSED, sent=2)
    monkeypatch.setattr(Session, "operation", lambda _session, _id: paused)

    def during(on_progress, should_stop):
        on_progress(Progress(operation=paused.id, counts=paused.counts))
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the second Ctrl-C did not interrupt")

    fake.during = during
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 130
    assert "Sent 2 of 3 dead letters: 2 awaited." in result.stderr
    assert "operations resume 3fa91111aaaa" in result.stderr
    assert result.stderr.endswith("Interrupted.\n")


def test_an_error_on_the_way_tells_how_far_it_came(run, orders, fake, operation, monkeypatch):
    def away(_session, _id):
        raise StoreUnavailable

    monkeypatch.setattr(Session, "operation", away)
    fake.during = lambda on_progress, _stop: on_progress(
        Progress(operation="3fa9", counts=operation(sent=1).counts)
    )
    fake.answer = StoreUnavailable("The store does not answer; check it.")
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 3
    assert result.stderr.endswith(
        "Sent 1 of 3 dead letters: 1 awaited.\nError: The store does not answer; check it.\n"
    )


def test_tasks_that_cannot_be_imported_are_an_error(run, orders, app, fake):
    app.conf.imports = ["shop.no_such_module"]
    result = run("redrive", "a1")
    assert result.exit_code == 1
    assert "Error: The app's tasks cannot be imported: ModuleNotFoundError" in result.stderr
