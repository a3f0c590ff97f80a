"""Braintree: braintree/exceptions/, made by status in braintree/util/http.py."""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.http import status_verdict
from celery_dlq.classify.evidence import message
from celery_dlq.classify.table import Finding, network, probed, terminal, transient, within

# braintree/util/http.py, raise_exception_from_status(): statuses without a class of their own.
_STATUS = re.compile(r"Unexpected HTTP_RESPONSE ([0-9]{3})\Z")


def unexpected(exc: BaseException) -> Finding | None:
    """UnexpectedError: the status stands in the text only."""
    match = _STATUS.match(message(exc))
    if match is None:
        return None
    return Finding(status_verdict(int(match[1])), "http.status", f"status={match[1]}")


ROWS = (
    transient(
        "braintree.answer",
        "braintree.exceptions.too_many_requests_error.TooManyRequestsError",
        "braintree.exceptions.service_unavailable_error.ServiceUnavailableError",
        "braintree.exceptions.gateway_timeout_error.GatewayTimeoutError",
        "braintree.exceptions.request_timeout_error.RequestTimeoutError",
    ),
    network(
        "braintree.network",
        "braintree.exceptions.http.connection_error.ConnectionError",
        "braintree.exceptions.http.timeout_error.TimeoutError",
    ),
    probed(
        "http.status",
        unexpected,
        "the status in the message, else its cause",
        "braintree.exceptions.unexpected_error.UnexpectedError",
    ),
    terminal(
        "braintree.answer",
        "braintree.exceptions.authentication_error.AuthenticationError",
        "braintree.exceptions.authorization_error.AuthorizationError",
        "braintree.exceptions.configuration_error.ConfigurationError",
        "braintree.exceptions.http.invalid_response_error.InvalidResponseError",
        "braintree.exceptions.invalid_challenge_error.InvalidChallengeError",
        "braintree.exceptions.invalid_signature_error.InvalidSignatureError",
        "braintree.exceptions.not_found_error.NotFoundError",
        "braintree.exceptions.server_error.ServerError",
        "braintree.exceptions.upgrade_required_error.UpgradeRequiredError",
        *within(
            "braintree.exceptions.test_operation_performed_in_production_error",
            "TestOperationPerformedInProductionError",
        ),
    ),
)
