import csv
import io
import json
from datetime import timedelta

import pytest
from sqlalchemy import select
from support.factories import T0, attempt, letter
from support.stores.statements import statements_of

from celery_dlq import DLQTask, Filter, Rule, State, Verdict
from celery_dlq.model.letter import Explanation
from celery_dlq.store.database import tables

#: The present, as the commands see it: letters that fail from now on are not meant.
NOW = T0 + timedelta(hours=1)

BUSY = Explanation(verdict=Verdict.TERMINAL, rule="default", path="shop_of_old.Busy")


def busy(task_id, **changes):
    died = attempt(exception_type="shop_of_old.Busy", rule="default")
    return letter(
        task_id, died, exception_type="shop_of_old.Busy", message="bank", traceback="",
        explanation=BUSY, **changes,
    )  # fmt: skip


@pytest.fixture
def three_busy(app, store):
    app.conf.dlq_transient = ["shop_of_old.Busy"]
    app.dead_letter_queue.__dict__.pop("_read_settings", None)
    app.dead_letter_queue.__dict__.pop("settings", None)
    app.dead_letter_queue.__dict__.pop("classifier", None)
    store.letters.save([busy("a1"), busy("b2"), busy("c3", task="shop.gone")])


def judged(store):
    return {item.task_id: item.rule for item in store.letters.find(Filter()).letters}


def audit(store):
    rows = store.database.read(lambda connection: connection.execute(select(tables.audit)).all())
    return [(row.act, row.count, json.loads(row.detail)) for row in rows]


def test_a_dry_run_shows_and_changes_nothing(run, store, three_busy):
    result = run("reclassify", "--all", "--dry-run")
    assert result.exit_code == 0
    assert result.stdout.count("dlq_transient") == 3
    assert "3 dead letters: 3 with a new verdict, 0 unchanged, 0 undecided." in result.stdout
    assert set(judged(store).values()) == {"default"}
    assert audit(store) == []


def test_new_verdicts_are_stored_and_audited(run, store, three_busy):
    assert run("reclassify", "--task", "charge", "--yes").exit_code == 0
    assert judged(store) == {"a1": "dlq_transient", "b2": "dlq_transient", "c3": "default"}
    asked = {"task": "charge", "states": ["dead"], "until": NOW.isoformat()}
    assert audit(store) == [("reclassify", 2, {"filter": asked})]
    found = store.letters.get("a1")
    assert (found.state, found.verdict) == (State.DEAD, Verdict.TRANSIENT)
    assert found.explanation.evidence.endswith("reclassified, before: terminal by default")
    again = run("reclassify", "--task", "charge", "--yes")
    assert "0 with a new verdict, 2 unchanged" in again.stdout
    assert len(audit(store)) == 1


def test_many_letters_need_confirmation(run, store, three_busy, terminal):
    terminal.sit_down()
    refused = run("reclassify", "--all", answer="n\n")
    assert (refused.exit_code, set(judged(store).values())) == (1, {"default"})
    assert "Nothing was changed." in refused.stderr
    assert run("reclassify", "--all", answer="y\n").exit_code == 0
    assert set(judged(store).values()) == {"dlq_transient"}


def test_without_a_terminal_it_needs_yes(run, store, three_busy):
    result = run("reclassify", "--all")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert set(judged(store).values()) == {"default"}


@pytest.mark.parametrize("words", [(), ("--all", "a1"), ("--task", "")])
def test_a_selection_is_required(run, three_busy, words):
    assert run("reclassify", *words, "--yes").exit_code == 2


def test_one_letter_by_its_id(run, store, three_busy):
    assert run("reclassify", "a1").exit_code == 0
    assert judged(store)["a1"] == "dlq_transient"
    assert run("reclassify", "zz").exit_code == 1


def test_a_closed_letter_is_left_alone(run, store, three_busy):
    run("discard", "a1", "--why", "test")
    result = run("reclassify", "a1")
    assert result.exit_code == 1
    assert "a1 is discarded and left alone" in result.stderr


def test_a_letter_that_failed_again_is_left_unchanged(run, store, three_busy, monkeypatch):
    original = store.letters.reclassify

    def late(changes, **options):
        died = attempt(minutes=50, rule="python.bug", exception_type="ValueError")
        store.letters.save([letter("a1", attempt(rule="default"), died)])
        return original(changes, **options)

    monkeypatch.setattr(store.letters, "reclassify", late)
    result = run("reclassify", "--all", "--yes")
    assert result.exit_code == 4
    assert "Reclassified 2 dead letters." in result.stdout
    assert "1 letter failed again in the meantime" in result.stderr
    assert store.letters.get("a1").rule == "python.bug"
    assert [count for _act, count, _detail in audit(store)] == [2]


def test_data_formats_hold_what_changes(run, three_busy):
    found = json.loads(run("reclassify", "--all", "--dry-run", "--format", "json").stdout)
    assert {(item["rule_before"], item["rule"]) for item in found} == {("default", "dlq_transient")}
    rows = csv.DictReader(
        io.StringIO(run("reclassify", "--all", "--dry-run", "--format", "csv").stdout)
    )
    assert [row["verdict"] for row in rows] == ["transient"] * 3


def test_a_tasks_own_rules_apply_and_its_code_does_not_run(run, app, store):
    @app.task(name="shop.own", base=DLQTask, shared=False, dlq_terminal=["shop_of_old.Busy"])
    def own():
        return None

    class Judging(DLQTask):
        abstract = True

        def classify(self, exc):
            raise AssertionError("asked")

    @app.task(name="shop.judging", base=Judging, shared=False)
    def judging():
        return None

    app.conf.dlq_rules = [Rule("shop_of_old.Busy", "transient", when=callable)]
    store.letters.save([busy("a1", task="shop.own"), busy("b2", task="shop.judging"), busy("c3")])
    out = run("reclassify", "--all", "--yes").stdout
    assert judged(store) == {"a1": "task.dlq_terminal", "b2": "default", "c3": "default"}
    assert "shop.judging.classify() judges the exception itself" in out


def test_letters_are_read_page_by_page_and_not_one_by_one(run, store):
    store.letters.save([letter(f"{number:04}") for number in range(60)])
    found = statements_of(store, lambda: run("reclassify", "--all", "--dry-run"))
    assert len(found) < 20


def test_a_cause_that_only_the_traceback_shows_counts(run, store, app):
    app.conf.dlq_transient = ["requests.exceptions.ReadTimeout"]
    app.dead_letter_queue.__dict__.pop("_read_settings", None)
    app.dead_letter_queue.__dict__.pop("settings", None)
    app.dead_letter_queue.__dict__.pop("classifier", None)
    told = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n'
        "requests.exceptions.ReadTimeout: slow\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    raise Busy from error\n'
        "RuntimeError: no\n"
    )
    judged_then = Explanation(verdict=Verdict.TERMINAL, rule="default", path="RuntimeError")
    store.letters.save(
        [
            letter(
                "a1", exception_type="RuntimeError", message="no", traceback=told,
                explanation=judged_then,
            )
        ]
    )  # fmt: skip
    result = run("reclassify", "a1", "--dry-run")
    assert "1 with a new verdict" in result.stdout, result.output
    assert "dlq_transient" in result.stdout
