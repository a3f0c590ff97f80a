"""Google: api-core and what is built on it, auth, resumable media, googleapiclient, httplib2."""

from __future__ import annotations

import json
from itertools import islice

from celery_dlq.classify.builtin.cloud.grpc import TRANSIENT_NAMES, code_name
from celery_dlq.classify.builtin.http import http_status, in_turn
from celery_dlq.classify.evidence import read, text_of
from celery_dlq.classify.table import (
    Finding,
    network,
    probed,
    terminal,
    transient,
    within,
    wrapper,
)
from celery_dlq.model.states import Verdict

# google/api_core/retry/retry_base.py, if_transient_error(): 500 and INTERNAL are retried.
_NAMES = TRANSIENT_NAMES | {"INTERNAL"}
_PASSING = frozenset({500})

# googleapiclient/http.py, _should_retry_response(); cloud.google.com/bigquery/docs/error-messages.
# Both may come with 403. quotaExceeded and dailyLimitExceeded are not among them.
TRANSIENT_REASONS = frozenset(
    {"rateLimitExceeded", "userRateLimitExceeded", "backendError", "internalError"}
)

_ERROR_LIMIT = 20
_BODY_LIMIT = 65_536


def grpc_status(exc: BaseException) -> Finding | None:
    """``grpc_status_code``: ABORTED and ALREADY_EXISTS are one HTTP status, UNKNOWN is none."""
    name = code_name(read(exc, "grpc_status_code"))
    # TooManyRequests and its like have an HTTP status only, which comes next.
    if name is None:
        return None
    verdict = Verdict.TRANSIENT if name in _NAMES else Verdict.TERMINAL
    return Finding(verdict, "grpc.code", f"grpc_status_code={name}")


def google_reason(exc: BaseException) -> Finding | None:
    """The reason that the body gives for a 403 that is about a rate."""
    for reason in _reasons(exc):
        if reason in TRANSIENT_REASONS:
            return Finding(Verdict.TRANSIENT, "google.reason", f"reason={reason}")
    return None


def _reasons(exc: BaseException) -> list[str]:
    for errors in (read(exc, "errors"), read(exc, "error_details"), _body_errors(exc)):
        if type(errors) is list:
            found = [_reason(error) for error in islice(errors, _ERROR_LIMIT)]
            if any(found):
                return [reason for reason in found if reason]
    return []


def _reason(error: object) -> str | None:
    return text_of(error.get("reason")) if type(error) is dict else None


def _body_errors(exc: BaseException) -> object:
    """``error.errors`` of the JSON body that googleapiclient keeps as bytes."""
    content = read(exc, "content")
    if type(content) is not bytes or len(content) > _BODY_LIMIT:
        return None
    try:
        body = json.loads(content)
    except ValueError:
        return None
    error = body.get("error") if type(body) is dict else None
    return error.get("errors") if type(error) is dict else None


def retryable(exc: BaseException) -> Finding | None:
    """The public flag of google-auth; False is its default, and so says nothing."""
    if read(exc, "retryable") is not True:
        return None
    return Finding(Verdict.TRANSIENT, "google.auth", "retryable=True")


ROWS = (
    # google/api_core/exceptions.py.
    probed(
        "google.code",
        in_turn(google_reason, grpc_status, http_status(("code",), passing=_PASSING)),
        "the reason, grpc_status_code, code",
        "google.api_core.exceptions.GoogleAPICallError",
    ),
    wrapper("google.retries", "the last error, in cause", "google.api_core.exceptions.RetryError"),
    terminal("google.usage", "google.api_core.exceptions.DuplicateCredentialArgs"),
    # A transfer whose bytes stopped coming.
    transient("google.transfer", "google.api_core.exceptions.TransferStalledError"),
    terminal(
        "google.transfer",
        *within(
            "google.api_core.exceptions",
            "UploadCancelledError UnseekableStreamError MissingStatusHeaderError",
        ),
    ),
    # google/auth/exceptions.py. A transport error keeps the original in args[0].
    network("google.network", "google.auth.exceptions.TransportError"),
    transient("google.network", "google.auth.exceptions.TimeoutError"),
    probed(
        "google.auth",
        retryable,
        "retryable, else its cause",
        "google.auth.exceptions.RefreshError",
        "google.auth.exceptions.GoogleAuthError",
    ),
    terminal(
        "google.auth",
        *within(
            "google.auth.exceptions",
            "DefaultCredentialsError MutualTLSChannelError ClientCertError ReauthFailError "
            "UserAccessTokenError OAuthError",
        ),
    ),
    # google/resumable_media/common.py, google/cloud/storage/exceptions.py.
    probed(
        "http.status",
        http_status(("response", "status_code"), passing=_PASSING),
        "response.status_code",
        "google.resumable_media.common.InvalidResponse",
        "google.cloud.storage.exceptions.InvalidResponse",
    ),
    transient(
        "google.checksum",
        "google.resumable_media.common.DataCorruption",
        "google.cloud.storage.exceptions.DataCorruption",
    ),
    terminal("google.usage", "google.cloud.storage.exceptions.InvalidPathError"),
    # googleapiclient/errors.py.
    probed(
        "google.code",
        in_turn(google_reason, http_status(("resp", "status"), ("status_code",), passing=_PASSING)),
        "the reason, resp.status",
        "googleapiclient.errors.HttpError",
    ),
    terminal("google.usage", "googleapiclient.errors.Error"),
    # httplib2/error.py. ServerNotFoundError is raised while a gaierror is handled.
    wrapper("http.host", "the lookup's error", "httplib2.error.ServerNotFoundError"),
    terminal(
        "http.usage",
        *within(
            "httplib2.error",
            "HttpLib2ErrorWithResponse MalformedHeader ProxiesUnavailableError RelativeURIError",
        ),
    ),
    terminal("http.content", *within("httplib2.decode", "DecodeLimitError DecodeRatioError")),
)
