from __future__ import annotations

import json
from dataclasses import fields
from datetime import timedelta

import pytest
from support.factories import T0

from celery_dlq.errors import FilterError
from celery_dlq.model.states import OPEN_STATES, Reason, State
from celery_dlq.store.base import Filter

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
    "held": True,
    "search": "declined",
    "operation": "5f0c",
}


def test_every_field_narrows():
    assert set(NARROWING) == {item.name for item in fields(Filter)}
    assert all(Filter(**{name: value}).restricts for name, value in NARROWING.items())
    assert not Filter().restricts


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
