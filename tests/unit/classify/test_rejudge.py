"""Texts and letters, judged again; the classes of requests and SQLAlchemy are loaded here."""

import sys
from types import ModuleType

import pytest
import requests
import sqlalchemy.exc
from support.factories import letter

from celery_dlq import Classifier, Rule, Terminal, Verdict
from celery_dlq.classify import judge_written, rejudge
from celery_dlq.classify.explain import stand_in
from celery_dlq.classify.traceback_parser import Written
from celery_dlq.model.letter import Explanation

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


def test_a_noted_refusal_counts_more_than_the_name(monkeypatch):
    module = ModuleType("somelib")
    module.__file__ = "/usr/lib/python3/site-packages/somelib/__init__.py"
    module.ConnectionTimeout = type("ConnectionTimeout", (Exception,), {"__module__": "somelib"})
    monkeypatch.setitem(sys.modules, "somelib", module)
    assert judge("somelib.ConnectionTimeout")[:2] == ("transient", "class.name")
    evidence = "status=404 from status_code"
    found = judge("somelib.ConnectionTimeout", evidence=evidence)
    assert found == ("terminal", "http.status", [])


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


# -- stored letters ---------------------------------------------------------------------------------

assert requests.HTTPError.__module__ == HTTP_ERROR.rpartition(".")[0]


def dead(
    type_name, rule="default", evidence="", path="", verdict="terminal", traceback="", message=""
):
    return letter(
        exception_type=type_name,
        message=message,
        traceback=traceback,
        explanation=Explanation(
            verdict=Verdict(verdict), rule=rule, evidence=evidence, path=path or type_name
        ),
    )  # fmt: skip


def judged(item, *rules):
    found = rejudge(item, Classifier(rules))
    changed = found.changed and (found.changed.verdict.value, found.changed.rule)
    return changed, found.untold


def test_a_letter_that_a_new_rule_is_about():
    item = dead("shop_of_old.Busy")
    rule = Rule("shop_of_old.Busy", "transient", name="mine")
    assert judged(item, rule) == (("transient", "mine"), "")
    evidence = rejudge(item, Classifier((rule,))).changed.evidence
    assert evidence == "type=shop_of_old.Busy; reclassified, before: terminal by default"


def test_an_unchanged_verdict_is_not_a_change():
    assert judged(dead("ValueError", "python.error", "type=ValueError")) == (None, "")
    assert judged(dead("shop_of_old.Busy")) == (None, "")


def test_the_code_in_the_evidence_counts():
    item = dead(HTTP_ERROR, "http.status", "status=404 from response.status_code")
    assert judged(item) == (None, "")
    own = Rule(HTTP_ERROR, "transient", status=404, name="mine")
    assert judged(item, own) == (("transient", "mine"), "")
    assert judged(item, Rule(HTTP_ERROR, "transient", status=410)) == (None, "")


def test_so_it_does_below_a_wrapper():
    traceback = (
        "Traceback (most recent call last):\n  File x\n"
        f"{HTTP_ERROR}: 404 Client Error\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n  File x\nshop_of_old.Failed: no price\n"
    )
    item = dead(
        "shop_of_old.Failed", "http.status", "status=404 from response.status_code",
        path=f"shop_of_old.Failed <- {HTTP_ERROR}", traceback=traceback, message="no price",
    )  # fmt: skip
    own = Rule(HTTP_ERROR, "transient", status=404, name="mine")
    found = rejudge(item, Classifier((own,)))
    # Nobody here knows what else that class derives from.
    assert "shop_of_old.Failed: its base classes" in found.untold
    assert judged(item.with_(traceback=traceback.replace("shop_of_old.Failed", "RuntimeError"),
                 exception_type="RuntimeError", explanation=Explanation(
                     verdict=Verdict.TERMINAL, rule="http.status", evidence=item.explanation.evidence,
                     path=f"RuntimeError <- {HTTP_ERROR}")), own) == (("transient", "mine"), "")  # fmt: skip


def test_evidence_that_was_not_stored_changes_nothing():
    item = dead(HTTP_ERROR, "http.status", "cut off", message="404 Client Error")
    changed, untold = judged(item)
    assert changed is None
    assert untold.startswith(f"not stored: {HTTP_ERROR}: ")
    predicate = Rule("ValueError", "transient", when=lambda exc: True, name="mine")
    found = judged(dead("ValueError", "old.rule", "type=ValueError"), predicate)
    assert found == (None, "not stored: ValueError: its predicate (mine: transient)")


@pytest.mark.parametrize(
    "rule",
    ["raised.transient", "task.classify", "task.retry", "message.invalid", "broker.dead_letter"],
)
def test_letters_that_no_rule_decided_are_left_alone(rule):
    changed, untold = judged(dead("ValueError", rule), Rule("ValueError", "transient"))
    assert (changed, untold) == (None, f"no rule of the classifier decided, but {rule}")


@pytest.mark.parametrize(
    ("type_name", "path", "traceback"),
    [
        ("", "", ""),
        ("?", "<-", "Traceback"),
        ("a..b", " <- ", "x"),
        ("<locals>.X", "", "\x00"),
        ("é" * 300, "", ""),
    ],
)
def test_a_letter_that_tells_nothing(type_name, path, traceback):
    found = rejudge(
        dead(type_name, "http.status", "status=", path, traceback=traceback), Classifier()
    )
    assert found.changed is None


class Unsold(ValueError):
    pass


def test_a_verdict_by_type_means_that_there_was_no_other_evidence():
    item = dead(f"{__name__}.Unsold", "python.error", "type=ValueError")
    assert judged(item, Rule(Unsold, "transient", status=503)) == (None, "")
    assert judged(item, Rule(Unsold, "transient", name="mine")) == (("transient", "mine"), "")


def test_a_letter_that_cannot_be_decrypted_is_not_judged():
    found = rejudge(letter(unreadable="The key is not here."), Classifier())
    assert (found.changed, found.untold) == (None, "The key is not here.")
