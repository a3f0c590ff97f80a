"""Anthropic: anthropic/_exceptions.py, which rewrites ``__module__``."""

from __future__ import annotations

from celery_dlq.classify.builtin.http import header_says, http_status, in_turn, word
from celery_dlq.classify.evidence import read, text_of
from celery_dlq.classify.table import Finding, network, probed, terminal, transient, within
from celery_dlq.model.states import Verdict

# docs.anthropic.com/en/api/errors. An event stream begins with status 200; what goes wrong later
# stands in its body.
_PASSING_TYPES = frozenset({"overloaded_error", "rate_limit_error", "api_error", "timeout_error"})

_spent = word(
    "anthropic.code",
    ("error_code",),
    lasting={"enforced_spend_limit_reached", "contract_spend_limit_reached"},
)

# anthropic/_base_client.py, _should_retry(): the header, then 408, 409 (a lock that timed out), 429
# and 5xx.
_answer = in_turn(
    _spent,
    header_says("x-should-retry", "anthropic.header"),
    http_status(("status_code",), passing=frozenset({409, 500})),
)


def streamed(exc: BaseException) -> Finding | None:
    """The type of an error that came within a stream: ``body["error"]["type"]``."""
    body = read(exc, "body")
    error = body.get("error") if type(body) is dict else None
    kind = text_of(error.get("type")) if type(error) is dict else None
    if kind is None:
        return None
    verdict = Verdict.TRANSIENT if kind in _PASSING_TYPES else Verdict.TERMINAL
    return Finding(verdict, "anthropic.type", f"type={kind}")


ROWS = (
    probed(
        "anthropic.answer",
        in_turn(_answer, streamed),
        "error_code, x-should-retry, status_code, the type in the body",
        "anthropic.APIError",
    ),
    network("anthropic.network", "anthropic.APIConnectionError"),
    # "Raise it … to have the request attempt retried."
    transient("anthropic.retryable", "anthropic.RetryableError"),
    # 429 all the same, but for a limit of money.
    terminal(
        "anthropic.spent",
        *within("anthropic", "EnforcedSpendLimitReachedError ContractSpendLimitReachedError"),
    ),
    terminal(
        "anthropic.content",
        *within("anthropic", "APIResponseValidationError APIWebhookValidationError"),
    ),
    terminal("anthropic.credentials", "anthropic.CredentialsError"),
)
