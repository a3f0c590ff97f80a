from __future__ import annotations

import json
import re
from dataclasses import fields
from datetime import timedelta

import pytest
from support.factories import T0

from celery_dlq.errors import FilterError
from celery_dlq.model.states import OPEN_STATES, Reason, State, Verdict
from celery_dlq.store.base import Argument, Filter

NARROWING = {
    "ids": ("0d3f",),
    "task": "shop.charge",
    "exception": "ValueError",
    "reason": Reason.TIMEOUT,
    "without_reasons": frozenset({Reason.TIMEOUT}),
    "queue": "celery",
    "states": frozenset({State.DEAD}),
    "group": "9c1e",
    "route": "payments",
    "since": T0,
    "until": T0,
    "worker": "celery@host",
    "release": "1.4.2",
    "tag": "money",
    "root": "0d3f",
    "verdict": Verdict.TRANSIENT,
    "rule": "http.",
    "args": (Argument(path="order_id", value="4711", positions=(("shop.charge", 0),)),),
    "values": ("4711",),
    "held": True,
    "search": "declined",
    "operation": "5f0c",
    "namespace": "shop",
}


def test_every_field_narrows():
    assert set(NARROWING) == {item.name for item in fields(Filter)}
    assert all(Filter(**{name: value}).restricts for name, value in NARROWING.items())
    assert not Filter().restricts


def test_some_fields_have_no_index():
    every = Filter(**{**NARROWING, "until": None})
    left_out = every.given - every.indexed.given
    assert left_out == {
        "args", "values", "worker", "release", "tag", "verdict", "rule", "search",
    }  # fmt: skip


def test_words_may_be_given_by_their_values():
    given = Filter(reason="poison", verdict="terminal", states={"dead"}, without_reasons=["lost"])
    assert given == Filter(
        reason=Reason.POISON, verdict=Verdict.TERMINAL, states=frozenset({State.DEAD}),
        without_reasons=frozenset({Reason.LOST}),
    )  # fmt: skip
    assert given.reason is Reason.POISON
    assert Filter.from_dict(json.loads(json.dumps(given.to_dict()))) == given


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"reason": "poisn"}, "'poisn' is not a reason; did you mean 'poison'"),
        ({"verdict": "transent"}, "'transent' is not a verdict; did you mean 'transient'"),
        ({"states": {"died"}}, "'died' is not a state"),
        ({"without_reasons": {"died"}}, "'died' is not a reason"),
        ({"reason": 7}, "'7' is not a reason"),
    ],
)
def test_an_unknown_word_is_refused(wrong, said):
    with pytest.raises(FilterError, match=re.escape(said)):
        Filter(**wrong)


def test_the_open_states_are_meant_when_none_is_named():
    assert Filter().wanted_states == OPEN_STATES
    assert Filter(states=frozenset({State.RESOLVED})).wanted_states == {State.RESOLVED}


@pytest.mark.parametrize("minutes", [0, -5])
def test_a_span_that_holds_no_moment_is_refused(minutes):
    with pytest.raises(FilterError, match=r"is not before --until .*swap them"):
        Filter(since=T0, until=T0 + timedelta(minutes=minutes))


@pytest.mark.parametrize("name", NARROWING)
def test_every_field_survives_json(name):
    given = Filter(**{name: NARROWING[name]})
    assert Filter.from_dict(json.loads(json.dumps(given.to_dict()))) == given


def test_what_does_not_narrow_is_not_written():
    assert Filter().to_dict() == {}
    assert Filter.from_dict({}) == Filter()
