import json
from datetime import timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.factories import T0, attempt, envelope, letter

from celery_dlq.model.letter import (
    DeadLetter,
    Outcome,
    attempt_from_outside,
    attempt_to_dict,
)
from celery_dlq.model.states import State


def through_json(value):
    return json.loads(json.dumps(value))


@given(
    body=st.binary(),
    message=st.text(),
    state=st.sampled_from(State),
    closed_at=st.none() | st.datetimes(timezones=st.just(timezone.utc)),
    tags=st.lists(st.text()).map(tuple),
)
def test_a_letter_survives_its_dictionary_form(body, message, state, closed_at, tags):
    original = letter(
        "a1", attempt(1, delay_s=0.25), attempt(2, minutes=1),
        envelope=envelope("a1", body=body), message=message, state=state,
        closed_at=closed_at, tags=tags,
    )  # fmt: skip
    assert DeadLetter.from_dict(through_json(original.to_dict())) == original


def test_an_outcome_survives_its_dictionary_form():
    outcome = Outcome(task_id="a", redrive=2, succeeded_at=T0, worker="w")
    assert Outcome.from_dict(through_json(outcome.to_dict())) == outcome


@pytest.mark.parametrize(
    "made", [letter(), Outcome(task_id="a", redrive=0, succeeded_at=T0, worker="")]
)
def test_a_newer_format_is_refused_by_name(made):
    with pytest.raises(ValueError, match="upgrade celery-dlq"):
        type(made).from_dict({**made.to_dict(), "format": 99})


def test_an_attempt_travels_with_a_short_message():
    data = through_json(attempt_to_dict(attempt(message="x" * 5_000)))
    assert len(data["message"]) <= 500
    assert attempt_from_outside(data).failed_at == T0


def test_a_letter_answers_for_its_parts():
    made = letter(envelope=envelope(queue="slow"))
    assert (made.queue, made.verdict, made.rule) == ("slow", made.explanation.verdict, "python.bug")
    assert made.with_(state=State.RESOLVED).state is State.RESOLVED
