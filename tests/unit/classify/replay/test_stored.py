"""Letters, judged again by what is stored of them."""

import pytest
import requests
from support.factories import letter

from celery_dlq import Classifier, Rule, Verdict
from celery_dlq.classify import rejudge
from celery_dlq.model.letter import Explanation

HTTP_ERROR = "requests.exceptions.HTTPError"
assert requests.HTTPError.__module__ == "requests.exceptions"


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


def judge(item, *rules):
    found = rejudge(item, Classifier(rules))
    changed = found.changed and (found.changed.verdict.value, found.changed.rule)
    return changed, found.untold


def test_a_letter_that_a_new_rule_is_about():
    item = dead("shop_of_old.Busy")
    rule = Rule("shop_of_old.Busy", "transient", name="mine")
    assert judge(item, rule) == (("transient", "mine"), "")
    evidence = rejudge(item, Classifier((rule,))).changed.evidence
    assert evidence == "type=shop_of_old.Busy; reclassified, before: terminal by default"


def test_an_unchanged_verdict_is_not_a_change():
    assert judge(dead("ValueError", "python.error", "type=ValueError")) == (None, "")
    assert judge(dead("shop_of_old.Busy")) == (None, "")


def test_the_code_in_the_evidence_counts():
    item = dead(HTTP_ERROR, "http.status", "status=404 from response.status_code")
    assert judge(item) == (None, "")
    own = Rule(HTTP_ERROR, "transient", status=404, name="mine")
    assert judge(item, own) == (("transient", "mine"), "")
    assert judge(item, Rule(HTTP_ERROR, "transient", status=410)) == (None, "")


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
    assert judge(item.with_(traceback=traceback.replace("shop_of_old.Failed", "RuntimeError"),
                 exception_type="RuntimeError", explanation=Explanation(
                     verdict=Verdict.TERMINAL, rule="http.status", evidence=item.explanation.evidence,
                     path=f"RuntimeError <- {HTTP_ERROR}")), own) == (("transient", "mine"), "")  # fmt: skip


def test_evidence_that_was_not_stored_changes_nothing():
    item = dead(HTTP_ERROR, "http.status", "cut off", message="404 Client Error")
    changed, untold = judge(item)
    assert changed is None
    assert untold.startswith(f"not stored: {HTTP_ERROR}: ")
    predicate = Rule("ValueError", "transient", when=lambda exc: True, name="mine")
    found = judge(dead("ValueError", "old.rule", "type=ValueError"), predicate)
    assert found == (None, "not stored: ValueError: its predicate (mine: transient)")


@pytest.mark.parametrize(
    "rule",
    ["raised.transient", "task.classify", "task.retry", "message.invalid", "broker.dead_letter"],
)
def test_letters_that_no_rule_decided_are_left_alone(rule):
    changed, untold = judge(dead("ValueError", rule), Rule("ValueError", "transient"))
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
    assert judge(item, Rule(Unsold, "transient", status=503)) == (None, "")
    assert judge(item, Rule(Unsold, "transient", name="mine")) == (("transient", "mine"), "")
