"""OpenAI: openai/_exceptions.py; before version 1, openai/error.py. The package sets ``__module__`` of the
exceptions to ``openai``."""

from celery_dlq.classify.builtin.http import header_says, http_status, in_turn, otherwise, word
from celery_dlq.classify.evidence import read, text_of
from celery_dlq.classify.table import Finding, network, probed, terminal, transient, within
from celery_dlq.model.states import Verdict

# platform.openai.com/docs/guides/error-codes: 429 is also the answer when the account has no credit left;
# then another attempt fails in the same way.
_lasting = word(
    "openai.code",
    ("code",),
    ("type",),
    lasting={
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "credit_balance_exhausted",
        "organization_usage_limit_exceeded",
        "account_deactivated",
    },
)

# The codes for the limit of an organization, a project or a user end with this.
_SPENT = "_spend_limit_exceeded"


def spent(exc: BaseException) -> Finding | None:
    """The finding for a spending limit that has been reached."""
    code = text_of(read(exc, "code")) or ""
    return (
        Finding(Verdict.TERMINAL, "openai.code", f"code={code}") if code.endswith(_SPENT) else None
    )


# These codes may also come in an event stream, whose status was already 200.
_passing = word(
    "openai.code",
    ("code",),
    ("type",),
    passing={"rate_limit_exceeded", "server_error", "server_is_overloaded", "slow_down"},
)

# openai/_base_client.py, _should_retry(): the header, then 408, 409 (a lock that timed out), 429
# and 5xx.
_answer = in_turn(
    _lasting,
    spent,
    header_says("x-should-retry", "openai.header"),
    _passing,
    http_status(("status_code",), ("http_status",), passing=frozenset({409, 500})),
)

ROWS = (
    probed("openai.answer", _answer, "code, x-should-retry, status_code", "openai.APIError"),
    network("openai.network", "openai.APIConnectionError"),
    terminal("openai.content", "openai.APIResponseValidationError"),
    transient(
        "openai.websocket",
        *within("openai", "WebSocketConnectionClosedError WebSocketQueueFullError"),
    ),
    terminal(
        "openai.content",
        *within("openai", "LengthFinishReasonError ContentFilterFinishReasonError"),
        "openai.InvalidWebhookSignatureError",
    ),
    # Version 0.
    probed(
        "openai.answer",
        in_turn(_answer, otherwise(Verdict.TRANSIENT, "openai.answer")),
        "code, http_status, else transient",
        *within("openai.error", "RateLimitError ServiceUnavailableError TryAgain Timeout"),
    ),
    probed("openai.answer", _answer, "code, http_status", "openai.error.OpenAIError"),
    network("openai.network", "openai.error.APIConnectionError"),
)
