"""Retries that a body asked for and that did not take place."""

import pytest
from celery.app.task import Context
from celery.exceptions import Reject

from celery_dlq import Reason, Verdict
from celery_dlq.classify import Decision
from celery_dlq.worker.body.refusal import (
    Refused,
    note_refused,
    refused_rejected,
    refused_with,
    unpublished,
)
from celery_dlq.worker.body.retrying import ASKED_FOR, judged_for

RULES = Decision(Verdict.TERMINAL, rule="r")
GONE, REJECTED = ConnectionError("bank"), Reject(OSError("no broker"), requeue=False)


def refused(raised, exc, reason):
    request = Context(id="4711")
    note_refused(request, Refused(raised, exc, reason, "why"))
    return request


@pytest.mark.parametrize(
    ("reason", "verdict"), [(Reason.BUDGET, ASKED_FOR), (Reason.EXHAUSTED, RULES)]
)
def test_the_exception_of_retry_ends_the_run(reason, verdict):
    died = refused_with(refused(GONE, GONE, reason), GONE, RULES)
    assert (died.exc, died.decision, died.reason, died.why) == (GONE, verdict, reason, "why")


def test_another_exception_is_judged_by_the_rules():
    assert refused_with(refused(GONE, GONE, Reason.BUDGET), KeyError("eur"), RULES) is None


def test_a_retry_that_could_not_be_published_dies_of_its_own_error():
    died = refused_rejected(refused(REJECTED, GONE, Reason.REJECTED))
    assert (died.exc, died.decision, died.reason) == (GONE, ASKED_FOR, Reason.REJECTED)
    assert "no broker" in unpublished(REJECTED)


def test_a_body_that_rejects_its_message_after_all_attempts_has_rejected_it():
    assert refused_rejected(refused(GONE, GONE, Reason.EXHAUSTED)) is None


def test_headers_of_a_message_are_not_mistaken_for_notes():
    hostile = Context(id="4711", _dlq_refused="x", _dlq_judged={"decision": 1})
    assert refused_with(hostile, GONE, RULES) is None
    assert refused_rejected(hostile) is None
    assert judged_for(hostile) is None
