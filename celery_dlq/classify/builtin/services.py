"""Probes of clients of single services."""

from __future__ import annotations

import re
from typing import cast

from celery_dlq.classify.builtin.codes import words
from celery_dlq.classify.builtin.http import (
    header_says,
    http_status,
    in_turn,
    status_in_text,
    status_verdict,
    word,
)
from celery_dlq.classify.evidence import message, read, shown_name, text_of
from celery_dlq.classify.table import Finding, Probe, transient_if
from celery_dlq.model.states import Verdict

# 409 is a lock that timed out, or that another request holds. All three services try it and 500 again.
_LOCKED_OR_500 = frozenset({409, 500})

# -- OpenAI -----------------------------------------------------------------------------------------

_openai_lasting = word("openai.code", ("code",), ("type",), lasting=words("openai.lasting"))

# The codes for the limit of an organization, a project or a user end with this.
_OPENAI_SPENT = "_spend_limit_exceeded"


def _openai_spent(exc: BaseException) -> Finding | None:
    """The finding for a spending limit that has been reached."""
    code = text_of(read(exc, "code")) or ""
    if not code.endswith(_OPENAI_SPENT):
        return None
    return Finding(Verdict.TERMINAL, "openai.code", f"code={code}")


_openai_passing = word("openai.code", ("code",), ("type",), passing=words("openai.passing"))

# openai/_base_client.py, _should_retry(): the header, then 408, 409 (a lock that timed out), 429
# and 5xx.
openai_answer: Probe = in_turn(
    _openai_lasting,
    _openai_spent,
    header_says("x-should-retry", "openai.header"),
    _openai_passing,
    http_status(("status_code",), ("http_status",), passing=_LOCKED_OR_500),
)

# -- Anthropic and Cohere ---------------------------------------------------------------------------

# docs.anthropic.com/en/api/errors. An event stream begins with status 200; a later error
# is in its body.
_ANTHROPIC_TYPES = frozenset({"overloaded_error", "rate_limit_error", "api_error", "timeout_error"})

_anthropic_spent = word(
    "anthropic.code",
    ("error_code",),
    lasting={"enforced_spend_limit_reached", "contract_spend_limit_reached"},
)


def _anthropic_streamed(exc: BaseException) -> Finding | None:
    """The type of an error that came within a stream: ``body["error"]["type"]``."""
    body = read(exc, "body")
    error = body.get("error") if type(body) is dict else None
    kind = text_of(error.get("type")) if type(error) is dict else None
    if kind is None:
        return None
    return transient_if(kind in _ANTHROPIC_TYPES, "anthropic.type", f"type={kind}")


# anthropic/_base_client.py, _should_retry(): the header, then 408, 409 (a lock that timed out), 429
# and 5xx.
anthropic_answer: Probe = in_turn(
    _anthropic_spent,
    header_says("x-should-retry", "anthropic.header"),
    http_status(("status_code",), passing=_LOCKED_OR_500),
    _anthropic_streamed,
)

# -- Stripe and Braintree ---------------------------------------------------------------------------

# stripe/_http_client.py, _should_retry(): the header, then 409 and 5xx.
stripe_header: Probe = header_says("stripe-should-retry", "stripe.header")
_stripe_status = http_status(("http_status",), passing=_LOCKED_OR_500)

# docs.stripe.com/error-codes: a rate limit, or a lock that another request holds.
_stripe_code = word(
    "stripe.code", ("code",), passing={"rate_limit", "lock_timeout", "idempotency_key_in_use"}
)

stripe_answer: Probe = in_turn(stripe_header, _stripe_code, _stripe_status)


def stripe_unreachable(exc: BaseException) -> Finding | None:
    """APIConnectionError has ``should_retry=False`` if it is about TLS or a mistake in the program."""
    if read(exc, "should_retry") is not False:
        return None
    # Stripe's client for urllib never sets the flag.
    if shown_name(type(read(exc, "__cause__"))) == "urllib.error.URLError":
        return None
    return Finding(Verdict.TERMINAL, "stripe.network", "should_retry=False")


# braintree/util/http.py, raise_exception_from_status(): statuses without a class of their own.
braintree_unexpected: Probe = status_in_text(r"Unexpected HTTP_RESPONSE ([0-9]{3})\Z")

# -- Slack, Telegram and Twilio ---------------------------------------------------------------------

_SLACK_ERRORS = words("slack.passing")

# aiohttp's own response, if the answer was not JSON.
_slack_status = http_status(("response", "status_code"), ("response", "status"))


def slack_answer(exc: BaseException) -> Finding | None:
    """Decides by the word in the answer's ``error``, then by the status."""
    word = _slack_error(read(exc, "response"))
    if word in _SLACK_ERRORS:
        return Finding(Verdict.TRANSIENT, "slack.error", f"error={word}")
    found = _slack_status(exc)
    if found is None and word is not None:
        return Finding(Verdict.TERMINAL, "slack.error", f"error={word}")
    return found


def _slack_error(response: object) -> str | None:
    # A SlackResponse keeps the answer in data; other clients give the answer itself.
    for answer in (read(response, "data"), response):
        if type(answer) is dict:
            return text_of(answer.get("error"))
    return None


def slack_rotation(exc: BaseException) -> Finding | None:
    """A token could not be renewed, for the reason in ``api_error``."""
    inner = read(exc, "api_error")
    if not issubclass(type(inner), BaseException):
        return None
    return slack_answer(cast(BaseException, inner))


# telegram/request/_baserequest.py: "<phrase> (<status>)" for statuses without a class, unless the
# answer describes itself, as Telegram's 413 does.
_TELEGRAM_STATUS = re.compile(r"Request Entity Too Large|[A-Za-z' -]+ \((4[0-9]{2})\)")


def telegram_refused(exc: BaseException) -> Finding | None:
    """Telegram's client raises NetworkError for answers, too; most statuses from 400 to 499 will not
    change."""
    match = _TELEGRAM_STATUS.match(message(exc))
    if match is None:
        return None
    status = int(match[1] or 413)
    if status_verdict(status) is Verdict.TRANSIENT:
        return None
    return Finding(Verdict.TERMINAL, "telegram.request", f"status={status}")


# -- GitHub and Google Maps -------------------------------------------------------------------------

# developers.google.com/maps/documentation/geocoding: UNKNOWN_ERROR "may succeed if you try
# again"; OVER_QUERY_LIMIT is about a rate, OVER_DAILY_LIMIT is not.
googlemaps_word: Probe = word(
    "googlemaps.status", ("status",), passing={"OVER_QUERY_LIMIT", "UNKNOWN_ERROR"}
)
