"""Filters are said as sentences."""

from datetime import timedelta

import pytest
from support.factories import T0

from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.store.base import Argument, Filter
from celery_dlq.view.operations import letters_said


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Filter(), "all open letters"),
        (Filter(states=frozenset({State.DEAD})), "all dead letters"),
        (
            Filter(task="charge", exception="ValueError", states=frozenset({State.DEAD})),
            "dead letters of the task charge, with the exception ValueError",
        ),
        (
            Filter(ids=("a",), states=frozenset({State.DEAD, State.PARKED})),
            "dead or parked letters with 1 chosen id",
        ),
        (Filter(ids=("a", "b")), "open letters with 2 chosen ids"),
        (
            Filter(group="9c1e", route="pay", worker="w", release="1.2", tag="t", root="r"),
            "open letters in the group 9c1e, on the route pay, from the worker w, of the release 1.2, "
            "with the tag t, in the canvas r",
        ),
        (
            Filter(reason=Reason.LOST, verdict=Verdict.TERMINAL, rule="http."),
            "open letters judged by the rule http., with the reason lost, with the verdict terminal",
        ),
        (
            Filter(without_reasons=frozenset({Reason.LOST, Reason.POISON})),
            "open letters with another reason than lost or poison",
        ),
        (
            Filter(
                args=(Argument.read("order_id=4711"),), values=("x@y",), search="bad", held=True
            ),
            "open letters with the text “bad”, with order_id=4711, with the value x@y, held for a person",
        ),
        (
            Filter(values=tuple("abcdefg")),
            "open letters with the value a, with the value b, with the value c, with the value d, "
            "with the value e, with 2 more values",
        ),
        (
            Filter(since=T0, until=T0 + timedelta(hours=1)),
            "open letters that failed since 2026-11-21 12:00:00 UTC and before 2026-11-21 13:00:00 UTC",
        ),
    ],
)
def test_each_field_is_said(wanted, said):
    assert letters_said(wanted) == said


def test_no_field_is_left_out():
    """A field that a filter gets later needs its words."""
    values = {
        "ids": ("a",), "reason": Reason.LOST, "verdict": Verdict.TERMINAL, "held": True,
        "without_reasons": frozenset({Reason.POISON}), "states": frozenset({State.PARKED}),
        "since": T0, "until": T0, "args": (Argument.read("a=1"),), "values": ("v",),
    }  # fmt: skip
    plain = letters_said(Filter())
    for name in Filter.__dataclass_fields__:
        assert letters_said(Filter(**{name: values.get(name, "x")})) != plain, name
