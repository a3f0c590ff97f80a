"""What rules say of texts; the classes of requests and SQLAlchemy are loaded here."""

import sys

import pytest
import requests
import sqlalchemy.exc

from celery_dlq import Classifier, Rule, Terminal, Verdict
from celery_dlq.classify import judge_written
from celery_dlq.classify.replay.synthetic import stand_in
from celery_dlq.classify.replay.traceback_parser import Written

HTTP_ERROR = "requests.exceptions.HTTPError"
NOT_FOUND = Rule(HTTP_ERROR, "transient", status=404, name="mine")


class Awkward(Exception):
    def __new__(cls, *, code):
        raise AssertionError("made")

    def __init_subclass__(cls, *, required):
        raise AssertionError("derived from")


class Property(Exception):
    @property
    def status_code(self):
        raise AssertionError("read")


def judge(type_name, message="", *rules, evidence="", before=None):
    reading = judge_written(
        Written(type_name, message, before, True), Classifier(rules), {type_name: evidence}
    )
    return reading.decision.verdict.value, reading.decision.rule, list(reading.unknown)


def test_a_verdict_by_type_needs_nothing_else():
    assert judge("ValueError", "x") == ("terminal", "python.error", [])
    assert judge("requests.exceptions.ConnectTimeout") == ("transient", "http.network", [])
    assert judge("shop.Busy", "", Rule("shop.Busy", "transient", name="mine")) == (
        "transient",
        "mine",
        [],
    )


def test_a_class_that_is_loaded_brings_its_base_classes():
    assert judge("json.decoder.JSONDecodeError", "Expecting value")[0] == "terminal"
    _, rule, unknown = judge("no_such_shop.Busy")
    assert rule == "default"
    assert any("base classes" in item for item in unknown)


def test_the_errno_is_in_the_message():
    assert judge("OSError", "[Errno 28] No space left on device")[:2] == ("transient", "os.errno")


def test_attributes_of_an_exception_are_unknown():
    verdict, rule, unknown = judge(HTTP_ERROR, "404 Client Error", NOT_FOUND)
    assert (verdict, rule) == ("terminal", "default")
    assert f"{HTTP_ERROR}: HTTP status 404 (mine: transient)" in unknown
    assert f"{HTTP_ERROR}: response.status_code" in unknown


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        ("status=404 from response.status_code", ("transient", "mine")),
        (
            "type=x, status=404 from response.status_code; 5 of 5 attempts used",
            ("transient", "mine"),
        ),
        ("status=400 from response.status_code", ("terminal", "http.status")),
    ],
)
def test_unless_the_evidence_has_kept_it(evidence, expected):
    verdict, rule, unknown = judge(HTTP_ERROR, "", NOT_FOUND, evidence=evidence)
    assert ((verdict, rule), unknown) == (expected, [])


def test_an_sqlstate_that_was_kept():
    own = Rule("sqlalchemy.exc.DBAPIError", "transient", sqlstate="40", name="mine")
    kept = "sqlstate=40001 from orig.sqlstate"
    assert judge("sqlalchemy.exc.DBAPIError", "", own, evidence=kept) == ("transient", "mine", [])
    other = "sqlstate=23505 from orig.sqlstate"
    assert "mine" not in str(judge("sqlalchemy.exc.DBAPIError", "", own, evidence=other))


@pytest.mark.parametrize(
    "evidence", ["status=4x4 from a", "status=1 from __class__.__name__", "errno= from", "="]
)
def test_invalid_evidence_is_ignored(evidence):
    assert judge("ValueError", "x", evidence=evidence)[0] == "terminal"


def test_predicates_are_not_called_but_named():
    def fail(exc):
        raise AssertionError("called")

    rule = Rule("shop.Busy", "transient", when=fail, name="mine")
    verdict, decided, unknown = judge("shop.Busy", "", rule)
    assert (verdict, decided) == ("terminal", "default")
    assert "shop.Busy: its predicate (mine: transient)" in unknown
    # Where its message does not fit, its predicate is of no account.
    unmatched = Rule("shop.Busy", "transient", when=fail, matching="^never", name="mine")
    assert "mine" not in str(judge("shop.Busy", "now", unmatched))


def test_the_chain_is_asked():
    cause = Written("ConnectionResetError", "[Errno 104] Connection reset by peer")
    verdict, rule, _ = judge("RuntimeError", "outer", before=cause)
    assert (verdict, rule) == ("transient", "os.network")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups are of Python 3.11")
@pytest.mark.parametrize(
    ("second", "verdict"), [("TimeoutError", "transient"), ("KeyError", "terminal")]
)
def test_the_members_of_a_group_are_asked(second, verdict):
    members = (Written("ConnectionError", ""), Written(second, ""))
    group = Written("ExceptionGroup", "several (2 sub-exceptions)", members=members)
    reading = judge_written(group, Classifier())
    assert reading.decision.verdict is Verdict(verdict)


def test_a_raised_verdict_decides_itself():
    assert judge("celery_dlq.Terminal", "closed")[:2] == ("terminal", "raised.terminal")
    assert Terminal.__name__ == "Terminal"


@pytest.mark.parametrize(
    "cls",
    [Awkward, Property, requests.HTTPError, sqlalchemy.exc.StatementError, UnicodeDecodeError],
)
def test_a_stand_in_is_made_of_any_class_without_calling_it(cls):
    name = (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )
    exc = stand_in(Written(name, "the message"), {name: "status=404 from status_code"})
    assert (str(exc), exc.status_code) == ("the message", 404)
    assert type(exc).__qualname__ == cls.__qualname__
    assert isinstance(exc, cls) is (cls is not Awkward)
