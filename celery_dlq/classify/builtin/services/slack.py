"""Slack: slack_sdk/errors/__init__.py, and slack/errors.py of slackclient 2."""

from __future__ import annotations

from typing import cast

from celery_dlq.classify.builtin.http import http_status
from celery_dlq.classify.evidence import read, text_of
from celery_dlq.classify.table import Finding, Row, probed, terminal, transient, within, wrapper
from celery_dlq.model.states import Verdict

# api.slack.com/methods: the errors that every method may return. The status is 200 for most.
_PASSING_ERRORS = frozenset(
    {
        "ratelimited",
        "rate_limited",
        "service_unavailable",
        "internal_error",
        "fatal_error",
        "request_timeout",
        "team_added_to_org",
    }
)

# aiohttp's own response, if the answer was not JSON.
_status = http_status(("response", "status_code"), ("response", "status"))


def slack_answer(exc: BaseException) -> Finding | None:
    """Decides by the word in the answer's ``error``, then by the status."""
    word = _error(read(exc, "response"))
    if word in _PASSING_ERRORS:
        return Finding(Verdict.TRANSIENT, "slack.error", f"error={word}")
    found = _status(exc)
    if found is None and word is not None:
        return Finding(Verdict.TERMINAL, "slack.error", f"error={word}")
    return found


def _error(response: object) -> str | None:
    # A SlackResponse keeps the answer in data; other clients give the answer itself.
    for answer in (read(response, "data"), response):
        if type(answer) is dict:
            return text_of(answer.get("error"))
    return None


def rotation(exc: BaseException) -> Finding | None:
    """A token could not be renewed, for the reason in ``api_error``."""
    inner = read(exc, "api_error")
    if not issubclass(type(inner), BaseException):
        return None
    return slack_answer(cast(BaseException, inner))


def _slack(module: str) -> tuple[Row, ...]:
    return (
        probed(
            "slack.error",
            slack_answer,
            "error in the answer, else its status",
            f"{module}.SlackApiError",
        ),
        transient("slack.closed", f"{module}.SlackClientNotConnectedError"),
        terminal(
            "slack.usage",
            *within(module, "BotUserAccessError SlackRequestError SlackObjectFormationError"),
        ),
        wrapper("slack.wrapped", "its cause", f"{module}.SlackClientError"),
    )


ROWS = (
    *_slack("slack_sdk.errors"),
    probed(
        "slack.error",
        rotation,
        "the error in api_error",
        "slack_sdk.errors.SlackTokenRotationError",
    ),
    terminal("slack.usage", "slack_sdk.errors.SlackClientConfigurationError"),
    *_slack("slack.errors"),
)
