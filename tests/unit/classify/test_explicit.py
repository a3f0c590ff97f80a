import pickle
from datetime import datetime, timedelta, timezone

import pytest

from celery_dlq import Classifier, Rule, Terminal, Transient, Verdict
from celery_dlq.classify import decide, subject

NOW = datetime(2026, 11, 21, tzinfo=timezone.utc)


class Refused(Exception):
    def __init__(self, *args, retry_after=None):
        super().__init__(*args)
        self.retry_after = retry_after


def test_the_raised_class_is_the_verdict():
    decision = decide(Transient(KeyError("x")))
    assert (decision.verdict, decision.rule) == (Verdict.TRANSIENT, "raised.transient")
    assert decision.evidence == "raised by the task for KeyError"
    decision = decide(Terminal("the account is closed"))
    assert (decision.verdict, decision.rule) == (Verdict.TERMINAL, "raised.terminal")
    assert (decision.evidence, decision.path) == ("raised by the task", "celery_dlq.Terminal")


@pytest.mark.parametrize("rule", [Rule(Exception, "transient"), Rule("celery_dlq.*", "transient")])
def test_it_comes_before_every_rule(rule):
    assert Classifier((rule,)).decide(Terminal("no")).rule == "raised.terminal"


def test_a_class_derived_from_it_says_the_same():
    class Busy(Transient):
        pass

    assert decide(Busy("bank")).rule == "raised.transient"


def test_it_counts_below_a_wrapper_and_in_a_group_of_one_kind():
    outer = RuntimeError("import failed")
    outer.__cause__ = Transient("bank")
    assert decide(outer).rule == "raised.transient"


def test_the_wrapped_exception_is_the_cause_and_the_subject():
    inner = KeyError("x")
    outer = Transient(Terminal(inner))
    assert outer.__cause__.__cause__ is inner
    assert subject(outer) is inner
    assert subject(inner) is inner
    text = Terminal("closed")
    assert (subject(text), str(text), str(Transient(inner))) == (text, "closed", str(inner))


def test_a_circle_ends():
    circle = Transient("x")
    circle.args = (circle,)
    assert subject(circle) is circle
    assert decide(circle).rule == "raised.transient"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (5, 5.0),
        (0.5, 0.5),
        (timedelta(minutes=1), 60.0),
        (NOW + timedelta(seconds=7), 7.0),
        (-3, 0.0),
        (timedelta(-1), 0.0),
        (NOW - timedelta(seconds=7), 0.0),
    ],
)
def test_the_wait(given, expected):
    decision = Classifier(now=lambda: NOW).decide(Transient("busy", retry_after=given))
    assert decision.retry_after == expected
    assert decision.throttled is (expected > 0)


def test_without_one_the_wrapped_exceptions_wait_counts():
    assert decide(Transient(Refused(retry_after=9))).retry_after == 9.0
    assert decide(Transient(Refused(retry_after=9), retry_after=2)).retry_after == 2.0
    assert decide(Transient(Refused())).retry_after is None


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("30", TypeError),
        (True, TypeError),
        ([1], TypeError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
    ],
)
def test_an_invalid_wait_is_refused_where_it_is_raised(given, error):
    with pytest.raises(error, match=r"retry_after=.*; give "):
        Transient("busy", retry_after=given)


def test_both_survive_pickling():
    again = pickle.loads(pickle.dumps(Transient(KeyError("x"), retry_after=3)))
    assert (type(subject(again)), again.retry_after) == (KeyError, 3.0)
    assert str(pickle.loads(pickle.dumps(Terminal("closed")))) == "closed"
