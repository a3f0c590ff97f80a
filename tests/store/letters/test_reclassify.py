"""New verdicts for stored letters, on each database."""

import json
from datetime import timedelta

import pytest
from sqlalchemy import select
from support.factories import T0, letter
from support.stores.rollup_checks import assert_counts_hold

from celery_dlq.model.letter import Explanation
from celery_dlq.model.states import Verdict
from celery_dlq.store.base import Filter, NewVerdict
from celery_dlq.store.database import tables
from celery_dlq.store.letters import records


def change(task_id, failed_at=T0, **fields):
    values = {"verdict": Verdict.TRANSIENT, "rule": "mine", "evidence": "type=X", "path": "X"}
    return NewVerdict(
        task_id=task_id, failed_at=failed_at, explanation=Explanation(**{**values, **fields})
    )


def audits(store):
    return store.database.read(lambda connection: connection.execute(select(tables.audit)).all())


@pytest.mark.clear("it reads or writes the tables itself")
def test_many_letters_are_one_act(store, monkeypatch):
    monkeypatch.setattr(records, "CHUNK", 2)
    ids = [f"{number:04}" for number in range(5)]
    store.letters.save([letter(task_id) for task_id in ids])
    wanted = Filter(task="charge")
    changes = [change(task_id) for task_id in reversed(ids)]
    assert store.letters.reclassify(changes, wanted=wanted, who="ann", now=T0) == 5
    assert {store.letters.get(task_id).explanation for task_id in ids} == {changes[0].explanation}
    (act,) = audits(store)
    assert (act.who, act.act, act.count, act.at) == ("ann", "reclassify", 5, T0)
    assert json.loads(act.detail) == {"filter": {"task": "charge"}}
    assert_counts_hold(store)


def test_a_newer_failure_and_a_letter_that_is_gone_are_not_touched(store):
    store.letters.save([letter("a"), letter("b")])
    changes = [change("a", T0 - timedelta(microseconds=1)), change("b"), change("none")]
    assert store.letters.reclassify(changes, wanted=Filter(), who="ann", now=T0) == 1
    assert (store.letters.get("a").rule, store.letters.get("b").rule) == ("python.bug", "mine")
    # The same again is not an error, and has the same result.
    assert store.letters.reclassify(changes, wanted=Filter(), who="ann", now=T0) == 1


def test_without_a_change_there_is_no_act(store):
    assert store.letters.reclassify([], wanted=Filter(), who="ann", now=T0) == 0
    assert audits(store) == []


def test_hostile_texts_are_stored_as_far_as_they_can_be(store):
    hostile = "nul \x00 half \ud800 " + "x" * 5_000
    task_id = "t\x00" + "y" * 400
    store.letters.save([letter(task_id)])
    one = change(task_id, rule=hostile, evidence=hostile, path=hostile)
    assert store.letters.reclassify([one], wanted=Filter(), who=hostile, now=T0) == 1
    assert store.letters.get(task_id).rule.startswith("nul \\u0000 half \\ud800 xx")
