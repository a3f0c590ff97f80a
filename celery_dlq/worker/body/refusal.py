"""Retries that did not take place although a body asked for them: its attempts or its budget were used up, or
the retry could not be published. Then ``retry()`` raises, and the exception may end the run."""

from __future__ import annotations

from dataclasses import dataclass

from celery.app.task import Context
from celery.exceptions import Reject

from celery_dlq.classify import Decision
from celery_dlq.model.states import Reason
from celery_dlq.redact import safe_message
from celery_dlq.worker.body.ending import Died
from celery_dlq.worker.body.retrying import ASKED_FOR


@dataclass(frozen=True)
class Refused:
    """Why ``retry()`` raised instead of sending a message."""

    #: The exception that ``retry()`` raised.
    raised: BaseException
    #: The exception that the message dies of, if ``raised`` ends the run.
    exc: BaseException
    reason: Reason
    why: str = ""


def note_refused(request: Context, refused: Refused) -> None:
    """Remember ``refused`` until the run of ``request`` ends."""
    request._dlq_refused = refused


def refused_with(request: Context, exc: BaseException, decision: Decision) -> Died | None:
    """The end of a run by ``exc``, if ``retry()`` raised it; ``decision`` is the verdict of the rules."""
    refused = _noted(request)
    if refused is None or refused.raised is not exc:
        return None
    # Over the budget, the body's wish to try again is the verdict; at the last attempt, the rules'.
    verdict = ASKED_FOR if refused.reason is Reason.BUDGET else decision
    return Died(refused.exc, verdict, refused.reason, refused.why)


def refused_rejected(request: Context) -> Died | None:
    """The end of a run by a Reject, if the Reject is Celery's, for a retry that could not be published."""
    refused = _noted(request)
    if refused is None or refused.reason is not Reason.REJECTED:
        return None
    return Died(refused.exc, ASKED_FOR, refused.reason, refused.why)


def unpublished(rejected: Reject) -> str:
    """Why a retry that Celery turned into ``rejected`` did not take place."""
    return f"the retry could not be published: {safe_message(rejected)}"


def _noted(request: Context) -> Refused | None:
    # The headers of a message are attributes of its Context, whatever their names are.
    noted: object = vars(request).pop("_dlq_refused", None)
    return noted if isinstance(noted, Refused) else None
