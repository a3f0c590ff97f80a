"""Letters by exception type and rule, for types about which no rule decided."""

from __future__ import annotations

from datetime import timedelta

from support.factories import T0, attempt, letter
from support.stores import redriving

from celery_dlq.model.letter import Explanation, Outcome
from celery_dlq.model.states import Verdict
from celery_dlq.store.base import Filter, TypeCount

UNKNOWN = ("default", "class.name")


def failed(task_id, exception_type, rule="default", minutes=0, evidence=""):
    decided = Explanation(verdict=Verdict.TERMINAL, rule=rule, evidence=evidence)
    return letter(
        task_id,
        attempt(minutes=minutes),
        exception_type=exception_type,
        explanation=decided,
        fingerprint=exception_type,
    )


def test_letters_are_counted_by_type_and_rule(store):
    store.letters.save(
        [
            failed("a", "bank.Busy", minutes=1),
            failed("b", "bank.Busy", minutes=2, evidence="it carries code=17"),
            failed("c", "bank.BusyTimeout", "class.name", minutes=3),
            failed("d", "bank.Known", "http.status", minutes=4),
        ]
    )
    store.closing.discard(Filter(ids=("a",)), who="ann", why="", now=T0)
    busy, timeout = store.counts.by_type(UNKNOWN, limit=9)
    assert busy == TypeCount(
        exception_type="bank.Busy",
        rule="default",
        letters=2,
        open=1,
        task_id="b",
        evidence="it carries code=17",
        last_failed_at=attempt(minutes=2).failed_at,
    )
    assert (timeout.exception_type, timeout.rule) == ("bank.BusyTimeout", "class.name")
    assert store.counts.by_type(UNKNOWN, limit=1) == (busy,)
    assert store.counts.by_type(("no such rule",), limit=9) == ()


def test_redrives_that_ended_are_counted(store):
    store.letters.save([failed("a", "bank.Busy"), failed("b", "bank.Busy")])
    later = {"lease_until": T0 + timedelta(hours=2), "limit": 9, "now": T0 + timedelta(hours=1)}
    redriving.claim(store, Filter(ids=("a", "b")), token="t", **later)
    redriving.confirm(store, "t", ["a", "b"])
    store.letters.record_outcomes(
        [Outcome(task_id="a", redrive=1, succeeded_at=T0 + timedelta(hours=1), worker="w")]
    )
    [busy] = store.counts.by_type(UNKNOWN, limit=9)
    assert (busy.letters, busy.open, busy.succeeded, busy.failed) == (2, 1, 1, 0)
