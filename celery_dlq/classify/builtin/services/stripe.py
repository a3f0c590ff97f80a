"""Stripe: stripe/_error.py, before version 8, stripe/error.py. A header decides before anything else."""

from __future__ import annotations

from celery_dlq.classify.builtin.http import header_says, http_status, in_turn, otherwise, word
from celery_dlq.classify.evidence import read, shown_name
from celery_dlq.classify.table import Finding, Row, network, probed, terminal, within
from celery_dlq.model.states import Verdict

# stripe/_http_client.py, _should_retry(): the header, then 409 and 5xx.
_header = header_says("stripe-should-retry", "stripe.header")
_status = http_status(("http_status",), passing=frozenset({409, 500}))

# docs.stripe.com/error-codes: a rate limit, or a lock that another request holds.
_code = word(
    "stripe.code", ("code",), passing={"rate_limit", "lock_timeout", "idempotency_key_in_use"}
)


def unreachable(exc: BaseException) -> Finding | None:
    """APIConnectionError has ``should_retry=False`` if it is about TLS or a mistake in the program."""
    if read(exc, "should_retry") is not False:
        return None
    # Stripe's client for urllib never sets the flag.
    if shown_name(type(read(exc, "__cause__"))) == "urllib.error.URLError":
        return None
    return Finding(Verdict.TERMINAL, "stripe.network", "should_retry=False")


def _stripe(module: str) -> tuple[Row, ...]:
    return (
        probed(
            "stripe.answer",
            in_turn(_header, _code, _status),
            "stripe-should-retry, code, http_status",
            f"{module}.StripeError",
        ),
        probed(
            "stripe.rate",
            in_turn(_header, otherwise(Verdict.TRANSIENT, "stripe.rate")),
            "stripe-should-retry, else transient",
            f"{module}.RateLimitError",
        ),
        probed(
            "stripe.answer",
            in_turn(_header, _code, _status, otherwise(Verdict.TERMINAL, "stripe.answer")),
            "stripe-should-retry, code, http_status, else terminal",
            *within(module, "CardError InvalidRequestError AuthenticationError PermissionError"),
            f"{module}.IdempotencyError",
        ),
        network("stripe.network", f"{module}.APIConnectionError", probe=unreachable),
        terminal("stripe.signature", f"{module}.SignatureVerificationError"),
    )


ROWS = (*_stripe("stripe._error"), *_stripe("stripe.error"))
