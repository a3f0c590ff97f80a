"""Azure: azure-core, azure-identity, azure-servicebus, azure-eventhub, azure-cosmos; msrest and msal."""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.http import http_status, in_turn, otherwise, status_verdict
from celery_dlq.classify.evidence import message
from celery_dlq.classify.table import Finding, network, probed, terminal, transient, within, wrapper
from celery_dlq.model.states import Verdict

# azure/core/pipeline/policies/_retry.py: 500 is retried like 502 to 504.
# 449: "retry with", learn.microsoft.com, "HTTP status codes for Azure Cosmos DB".
_PASSING = frozenset({449, 500})

_status = http_status(("status_code",), ("response", "status_code"), passing=_PASSING)

# msal/throttled_http_client.py, NormalizedResponse.raise_for_status(): nothing but the text is kept.
_MSAL_STATUS = re.compile(r"HTTP Error: ([0-9]{3})\Z")


def msal_answer(exc: BaseException) -> Finding | None:
    """MsalServiceError: the status of the answer that stands for a token."""
    match = _MSAL_STATUS.match(message(exc))
    if match is None:
        return None
    status = int(match[1])
    verdict = Verdict.TRANSIENT if status in _PASSING else status_verdict(status)
    return Finding(verdict, "http.status", f"status={status} in the message")


_TOKENS = (
    # msal/exceptions.py.
    probed(
        "http.status",
        msal_answer,
        "the status in the message",
        "msal.exceptions.MsalServiceError",
    ),
    terminal("azure.credentials", "msal.managed_identity.ManagedIdentityError"),
)

_MSREST = (
    # msrest/exceptions.py, the base of azure-core's predecessors: raised over what requests raised,
    # which is inner_exception and the context.
    wrapper(
        "azure.wrapped",
        "inner_exception or its cause",
        *within("msrest.exceptions", "ClientException ClientRequestError AuthenticationError"),
    ),
    probed(
        "http.status",
        http_status(("response", "status_code"), ("status_code",), passing=_PASSING),
        "response.status_code",
        "msrest.exceptions.HttpOperationError",
    ),
    terminal(
        "azure.usage",
        *within(
            "msrest.exceptions",
            "DeserializationError SerializationError TokenExpiredError ValidationError",
        ),
    ),
)

_AZURE = (
    # azure/core/exceptions.py.
    network(
        "azure.network",
        *within("azure.core.exceptions", "ServiceRequestError ServiceResponseError"),
    ),
    transient("azure.closed", "azure.core.exceptions.IncompleteReadError"),
    probed(
        "http.status", _status, "status_code", *within("azure.core.exceptions", "HttpResponseError")
    ),
    # They are a status most of the time; made without a response, they still say enough.
    probed(
        "azure.request",
        in_turn(_status, otherwise(Verdict.TERMINAL, "azure.request")),
        "status_code, else terminal",
        *within(
            "azure.core.exceptions",
            "ClientAuthenticationError ResourceExistsError ResourceNotFoundError "
            "ResourceModifiedError ResourceNotModifiedError TooManyRedirectsError DecodeError",
        ),
    ),
    terminal(
        "azure.usage",
        *within(
            "azure.core.exceptions", "StreamConsumedError StreamClosedError ResponseNotReadError"
        ),
    ),
    terminal(
        "azure.polling",
        *within("azure.core.polling.base_polling", "BadResponse BadStatus OperationFailed"),
    ),
    wrapper("azure.wrapped", "inner_exception or its cause", "azure.core.exceptions.AzureError"),
    # azure/identity/_exceptions.py: nothing on this machine can log in.
    terminal("azure.credentials", "azure.identity._exceptions.CredentialUnavailableError"),
    # azure/servicebus/exceptions.py, azure/eventhub/exceptions.py. Their own _retryable says
    # "reopen the link", also for a login that failed.
    transient(
        "azure.messaging",
        *within(
            "azure.servicebus.exceptions",
            "OperationTimeoutError ServiceBusCommunicationError ServiceBusServerBusyError "
            "SessionCannotBeLockedError",
        ),
        "azure.eventhub.exceptions.OperationTimeoutError",
        "azure.eventhub.exceptions.ConnectionLostError",
    ),
    network(
        "azure.network",
        "azure.servicebus.exceptions.ServiceBusConnectionError",
        "azure.eventhub.exceptions.ConnectError",
    ),
    terminal(
        "azure.messaging",
        *within(
            "azure.servicebus.exceptions",
            "AutoLockRenewFailed AutoLockRenewTimeout MessageAlreadySettled MessageLockLostError "
            "MessageNotFoundError MessageSizeExceededError MessagingEntityAlreadyExistsError "
            "MessagingEntityDisabledError MessagingEntityNotFoundError SessionLockLostError "
            "ServiceBusAuthenticationError ServiceBusAuthorizationError ServiceBusQuotaExceededError",
        ),
        *within(
            "azure.eventhub.exceptions", "AuthenticationError ClientClosedError EventDataError"
        ),
        "azure.eventhub.exceptions.OwnershipLostError",
    ),
    # _pyamqp/error.py of both: AMQP 1.0 below them, when it comes through.
    network(
        "azure.network",
        "azure.servicebus._pyamqp.error.AMQPConnectionError",
        "azure.eventhub._pyamqp.error.AMQPConnectionError",
    ),
    terminal(
        "azure.messaging",
        "azure.servicebus._pyamqp.error.AuthenticationException",
        "azure.eventhub._pyamqp.error.AuthenticationException",
    ),
    # azure/cosmos/exceptions.py.
    transient("azure.network", "azure.cosmos.exceptions.CosmosClientTimeoutError"),
)

ROWS = (*_AZURE, *_MSREST, *_TOKENS)
