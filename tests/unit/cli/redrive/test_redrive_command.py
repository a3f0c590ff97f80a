import re
from dataclasses import replace
from datetime import timedelta

import pytest
from support.factories import T0, letter

from celery_dlq.cli.redrive import running
from celery_dlq.cli.session import Session
from celery_dlq.model.operation import OperationState, Orders, Pacing, Sending, SendingState
from celery_dlq.model.states import State
from celery_dlq.redrive import plan
from celery_dlq.redrive.operation import Operations as Redrives
from celery_dlq.store.base import Filter, Rows
from celery_dlq.store.redrive.operations import Operations
from celery_dlq.store.redrive.sendings import Sendings


def states(store):
    every = store.letters.find(Filter(states=frozenset(State))).letters
    return {item.task_id: item.state.value for item in every}


def test_sends_one_letter_without_asking(run, orders, store, app):
    result = run("redrive", "a")
    assert result.exit_code == 0, result.stderr
    assert "Sent 1 of 1 dead letter: 1 awaited." in result.stdout
    assert "Next: wait for outcomes; check again: celery dlq operations show" in result.stdout
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


def test_a_plan_without_letters_left_is_a_failure(run, orders, store, monkeypatch):
    plan = Redrives.plan

    def plan_and_lose(redrives, *asked, **options):
        found = plan(redrives, *asked, **options)
        store.closing.discard(Filter(), who="bob", why="mine", now=T0)
        return found

    monkeypatch.setattr(Redrives, "plan", plan_and_lose)
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 1
    assert "Sent 0 of 0 dead letters" in result.stderr
    assert "The plan had 3 dead letters, but 3 could no longer be taken" in result.stderr
    assert "See their state: celery dlq list" in result.stderr


def test_letters_taken_by_others_since_the_plan_exit_with_4(run, orders, fake, operation):
    fake.answer = operation(planned=2, sent=2)
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 4
    assert "The plan had 3 dead letters, but 1 could no longer be taken" in result.stderr


def test_a_dry_run_changes_nothing(run, orders, store, fake):
    result = run("redrive", "--all", "--dry-run", "--rate", "6/m")
    assert result.exit_code == 0
    assert "To send      3 dead letters" in result.stdout
    assert "Takes about  30s" in result.stdout
    assert fake.asked == []
    assert set(states(store).values()) == {"dead"}


def test_a_dry_run_names_reasons_and_changes(run, store, fake):
    store.letters.save(
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


def test_a_plan_does_not_contradict_what_was_checked(run, orders, store, fake):
    refused = ("redrive", "--all", "--set", "args.9=1")
    dry = run(*refused, "--dry-run").stdout
    assert "To send  0 dead letters" in dry
    assert "0 dead letters of 3 would be sent." in dry
    result = run(*refused, "--yes")
    assert result.exit_code == 1
    assert "To send  0 dead letters" in result.stdout
    assert "Not sent: a1: it has no args.9" in result.stderr
    assert "Nothing was sent. 3 cannot be sent and stay dead." in result.stderr
    assert fake.asked == []


def test_a_plan_of_many_marks_the_upper_bound(run, orders, fake, terminal, monkeypatch):
    monkeypatch.setattr(plan, "MOST", 2)
    terminal.sit_down(stdout=False)
    result = run("redrive", "--all", answer="y")
    assert "To send  at most 3 dead letters" in result.stdout
    assert "The first 2 were checked one by one" in result.stdout
    assert "Redrive at most 3 dead letters?" in result.stderr
    assert "To send  3 dead letters" in run("redrive", "--all", "--dry-run").stdout


def test_a_dry_run_keeps_to_the_limit_and_the_oldest(run, orders):
    out = run("redrive", "--all", "--dry-run", "--limit", "1", "--priority", "5").stdout
    assert "1 dead letter of 1 would be sent." in out


@pytest.mark.parametrize("option", ["--repair=no such repair", "--set=nonsense"])
def test_an_invalid_repair_is_a_usage_error(run, orders, fake, option):
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


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "Give ids or filters, or --all"),
        (["--state", "dead"], "Give ids or filters, or --all"),
        (["--all", "a1"], "--all contradicts"),
        (["--all", "--task", "charge"], "--all contradicts"),
        (["--all", "--state", "redriven"], "--all contradicts"),
        (["--all", "--rate", "0"], "is not a rate; write 50/s"),
        (["--all", "--rate", "fast"], "is not a rate; write 50/s"),
        (["--all", "--limit", "0"], "not in the range"),
        (["--all", "--canary", "4"], "4 is more than the 3 letters"),
        (["--all", "--detach", "--wait"], "--wait contradicts --detach"),
        (["--all", "--wait", "soon"], "is not a duration"),
        (["--all", "--to-task", "shop.chrage"], "did you mean 'shop.charge'?"),
        (["--all", "--to-task", "x\x1b[2J"], "'x\\x1b[2J' is not a task of this app; there is"),
        (["--state", "resolved"], "resolved"),
        (["--queue", " ", "--since", "1d"], "'--queue': it is empty"),
        (["--since", "1h", "--until", "1h"], "is not before"),
    ],
)
def test_an_invalid_command_line_sends_nothing(run, orders, fake, args, message):
    result = run("redrive", *args, "--yes")
    assert result.exit_code == 2
    assert message in result.stderr
    assert fake.asked == []


def test_many_letters_need_yes_without_a_terminal(run, orders, fake):
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


@pytest.mark.parametrize(
    ("counts", "status", "said"),
    [
        ({"sent": 1, "succeeded": 2}, 0, "Sent 3 of 3 dead letters: 2 succeeded, 1 awaited."),
        ({"succeeded": 2, "failed": 1}, 0, "3 dead letters: 2 succeeded, 1 failed again."),
        ({"succeeded": 2, "skipped": 1}, 4, "1 letter skipped and left unchanged."),
        ({"skipped": 3}, 1, "Sent 0 of 3 dead letters."),
        (
            {"succeeded": 2, "unknown": 1},
            0,
            "send those without an outcome again: "
            "celery dlq redrive --state redriven --operation 3fa91111aaaa\n",
        ),
        (
            {"sent": 1, "succeeded": 1, "unknown": 1},
            0,
            "check again: celery dlq operations show 3fa9",
        ),
    ],
)
def test_unsent_letters_are_not_a_success_and_outcomes_are_reported(
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
        Sendings, "of_operation", lambda *_args, **_: Rows(rows=(failed, skipped), next="x")
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
    assert "1 letter not sent and left unchanged." in result.stderr
    assert "Operation 3fa91111aaaa is aborted: 2 in a row came back: a1, b1" in result.stderr
    assert "Next: fix the cause" in result.stderr


def test_letters_taken_by_others_are_not_called_unchanged(run, orders, fake, operation):
    fake.answer = operation(state=OperationState.DONE, succeeded=2)
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 4
    assert "1 letter not sent, because another process took or closed them first" in result.stderr
    assert "unchanged" not in result.stderr
    assert "Next: nothing; see the others:" in result.stderr


def test_an_obstacle_pauses_the_operation(run, orders, fake, operation):
    fake.answer = operation(
        state=OperationState.PAUSED, sent=1, sending=1, cause="the broker\nwent away"
    )
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 4
    assert "is paused: the broker\\nwent away" in result.stderr
    assert "1 letter may have been sent, but the broker has not confirmed it" in result.stderr
    assert "Next: to continue: celery dlq operations resume 3fa91111aaaa" in result.stderr


def test_quiet_does_not_report_a_success(run, orders, fake):
    result = run("redrive", "--all", "--yes", quiet=True)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_a_detached_redrive_is_left_to_a_worker(run, orders, fake, operation, monkeypatch):
    monkeypatch.setattr(running, "_ANSWER_S", 0)
    fake.answer = operation(state=OperationState.PLANNED, detached=True)
    result = run("redrive", "--all", "--yes", "--detach")
    assert result.exit_code == 5
    assert fake.asked[0][1]["detach"]
    assert result.stdout.endswith(
        "A worker will send operation 3fa91111aaaa with 3 dead letters. "
        "See: celery dlq operations show 3fa91111aaaa\n"
    )


def test_waiting_makes_the_outcome_part_of_the_status(run, orders, fake, operation, monkeypatch):
    later = operation(succeeded=2, failed=1)
    monkeypatch.setattr(Operations, "get", lambda *_: later)
    monkeypatch.setattr(running, "_LOOK_S", 0)
    assert run("redrive", "--all", "--yes").exit_code == 0
    result = run("redrive", "--all", "--yes", "--wait", "1m")
    assert result.exit_code == 4
    assert "2 succeeded, 1 failed again." in result.stderr


@pytest.mark.parametrize(
    ("outcome", "status", "said"),
    [("succeeded", 0, "1 succeeded."), ("failed", 1, "1 failed again.")],
)
def test_a_single_letter_is_waited_for_if_a_worker_answers(
    run, orders, fake, operation, monkeypatch, outcome, status, said
):
    fake.answer = operation(sent=1, planned=1)
    later = operation(planned=1, **{outcome: 1})
    monkeypatch.setattr(Operations, "get", lambda *_: later)
    monkeypatch.setattr(running, "_LOOK_S", 0)
    assert "1 awaited." in run("redrive", "a1").stdout
    monkeypatch.setattr(Session, "why_no_worker", lambda _session: "")
    result = run("redrive", "a1")
    assert result.exit_code == status
    assert said in result.output


def test_a_second_redrive_names_the_running_one(run, orders, held, fake):
    held(2)
    result = run("redrive", "--all", "--yes")
    assert "To send  1 dead letter\n" in result.stdout
    assert "2 claimed or redriven already; left alone" in result.stdout
    assert "Operation 77aa00000000 of bob is running" in result.stderr


def test_tasks_that_cannot_be_imported_are_an_error(run, orders, app, fake):
    app.conf.imports = ["shop.no_such_module"]
    result = run("redrive", "a1")
    assert result.exit_code == 1
    assert "Error: The app's tasks cannot be imported: ModuleNotFoundError" in result.stderr


@pytest.mark.parametrize("words", [["--wait=5s"], ["--wait", "5s"]])
def test_a_time_to_wait_has_a_unit(run, orders, fake, monkeypatch, words):
    waited = []

    def wait(_session, operation, seconds):
        waited.append(seconds)
        return operation

    monkeypatch.setattr(running, "await_outcomes", wait)
    result = run("redrive", *words, "a1")
    assert (waited, len(fake.asked)) == ([5.0], 1), result.stderr


def test_an_id_after_wait_is_not_taken_for_seconds(run, store, fake):
    store.letters.save([letter("00000002"), letter("00000003")])
    result = run("redrive", "--wait", "00000002", "00000003")
    assert result.exit_code == 2
    assert "'00000002' has no unit; write --wait=00000002s, or put --wait after the ids." in (
        " ".join(result.stderr.split())
    )
    assert fake.asked == []


@pytest.mark.parametrize(
    ("count", "given", "suggested"),
    [
        (19, (), ""),
        (20, (), "--canary 5 --rate 1/s"),
        (150, (), "--canary 5 --rate 3/s"),
        (20, ("--canary", "1"), ""),
        (20, ("--rate", "9"), ""),
        (20, ("--no-guard",), ""),
    ],
)
def test_a_redrive_of_many_letters_gets_a_suggestion(run, store, app, count, given, suggested):
    store.letters.save([letter(f"{number}") for number in range(count)])
    out = run("redrive", "--all", "--dry-run", *given).stdout
    assert ("Suggestion" in out) is bool(suggested)
    assert suggested in out


def test_an_operation_whose_letters_all_failed_again_is_not_done(
    run, read, store, operation, orders, fake
):
    fake.answer = operation(planned=3, failed=3)
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 1
    assert "Sent 3 of 3 dead letters: 3 failed again." in result.stderr
    fake.answer = operation(planned=3, failed=1, sent=2)
    assert run("redrive", "--all", "--yes").exit_code == 0
