"""Probes of AWS, gRPC, Google and Azure."""

from __future__ import annotations

import json
from itertools import islice

from celery_dlq.classify.builtin.codes import words
from celery_dlq.classify.builtin.http import http_status, in_turn, status_in_text, status_verdict
from celery_dlq.classify.evidence import call, mapping_item, number, read, text_of
from celery_dlq.classify.table import Finding, Probe, transient_if
from celery_dlq.model.states import Verdict

# -- AWS: botocore, boto3 and s3transfer ------------------------------------------------------------


def _lower(codes: frozenset[str]) -> frozenset[str]:
    # Event streams spell them in camel case: internalServerException.
    return frozenset(code.lower() for code in codes)


AWS_CODES = words("aws.throttles", "aws.legacy", "aws.faults")
_PASSING, _LASTING = _lower(AWS_CODES), _lower(words("aws.lasting"))
_PASSING_REASONS = _lower(words("aws.reasons"))
_REASON_LIMIT = 100


def aws_code(exc: BaseException, attribute: str = "response") -> Finding | None:
    """``response["Error"]["Code"]``, for cancelled transactions their reasons, else the status."""
    answer = read(exc, attribute)
    code = text_of(mapping_item(answer, "Error", "Code"))
    cancelled = _cancellation(answer)
    if cancelled is not None:
        return cancelled
    if code is not None and code.lower() in _PASSING:
        return Finding(Verdict.TRANSIENT, "aws.code", f"code={code}")
    if code is not None and code.lower() in _LASTING:
        return Finding(Verdict.TERMINAL, "aws.code", f"code={code}")
    return _by_status(code, number(mapping_item(answer, "ResponseMetadata", "HTTPStatusCode")))


def _by_status(code: str | None, status: int | None) -> Finding | None:
    if status is None or status < 300:
        # The answer to HEAD has no body; its code is the status once more.
        status = number(code)
    if status is None:
        return Finding(Verdict.TERMINAL, "aws.code", f"code={code}") if code else None
    # 500: "Retry your request" (AWS documents it as a failure of the service).
    verdict = Verdict.TRANSIENT if status == 500 else status_verdict(status)
    return Finding(verdict, "aws.code", f"code={code}, status={status}")


def _cancellation(response: object) -> Finding | None:
    reasons = mapping_item(response, "CancellationReasons")
    if type(reasons) is not list:
        return None
    codes = [text_of(mapping_item(reason, "Code")) for reason in islice(reasons, _REASON_LIMIT)]
    real = sorted({code for code in codes if code is not None and code != "None"})
    passes = bool(real) and all(code.lower() in _PASSING_REASONS for code in real)
    return transient_if(passes, "aws.code", f"cancelled for {','.join(real)}")


def aws_waiter(exc: BaseException) -> Finding:
    """A waiter gave up waiting, or came to a state that it cannot leave."""
    reason = text_of(mapping_item(read(exc, "kwargs"), "reason")) or ""
    if reason.startswith("Max attempts exceeded"):
        return Finding(Verdict.TRANSIENT, "aws.waiter", "max attempts exceeded")
    found = aws_code(exc, "last_response")
    return found or Finding(Verdict.TERMINAL, "aws.waiter", "a state that it cannot leave")


# -- gRPC -------------------------------------------------------------------------------------------

GRPC_NAMES = words("grpc.passing")

# google/rpc/code.proto, in the order of the numbers.
_ALL_NAMES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
    "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
    "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip

# BoringSSL's reason, which grpc quotes in the details of an UNAVAILABLE.
_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"


def code_name(code: object) -> str | None:
    """The name of a status code, from ``grpc.StatusCode``, another enum, or its number."""
    name = text_of(read(code, "name"))
    if name in _ALL_NAMES:
        return name
    found = number(code)
    return _ALL_NAMES[found] if found is not None and 0 <= found < len(_ALL_NAMES) else None


def grpc_code(exc: BaseException) -> Finding | None:
    """The answer of ``code()``; the details if the server's certificate failed."""
    name = code_name(call(exc, "code"))
    if name is None:
        return None
    if name == "UNAVAILABLE" and _CERTIFICATE in (text_of(call(exc, "details")) or ""):
        return Finding(Verdict.TERMINAL, "tls.certificate", f"details say {_CERTIFICATE}")
    return transient_if(name in GRPC_NAMES, "grpc.code", f"code={name}")


def grpclib_status(exc: BaseException) -> Finding | None:
    """``status`` of grpclib's only error."""
    return _by_name(exc, "status", GRPC_NAMES)


def _by_name(exc: BaseException, attribute: str, passing: frozenset[str]) -> Finding | None:
    name = code_name(read(exc, attribute))
    return (
        None if name is None else transient_if(name in passing, "grpc.code", f"{attribute}={name}")
    )


# -- Google -----------------------------------------------------------------------------------------

# google/api_core/retry/retry_base.py, if_transient_error(): 500 and INTERNAL are retried.
_GOOGLE_NAMES = GRPC_NAMES | {"INTERNAL"}
_GOOGLE_PASSING = frozenset({500})

_REASONS = words("google.reasons")

_ERROR_LIMIT = 20
_BODY_LIMIT = 65_536


def grpc_status(exc: BaseException) -> Finding | None:
    """``grpc_status_code``: ABORTED and ALREADY_EXISTS are one HTTP status, UNKNOWN is none."""
    # TooManyRequests and its like have an HTTP status only, which comes next.
    return _by_name(exc, "grpc_status_code", _GOOGLE_NAMES)


def google_reason(exc: BaseException) -> Finding | None:
    """The reason that the body gives for a 403 that is about a rate."""
    for reason in _reasons(exc):
        if reason in _REASONS:
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


google_api_core: Probe = in_turn(
    google_reason, grpc_status, http_status(("code",), passing=_GOOGLE_PASSING)
)
google_api_client: Probe = in_turn(
    google_reason, http_status(("resp", "status"), ("status_code",), passing=_GOOGLE_PASSING)
)

# -- Azure ------------------------------------------------------------------------------------------

# azure/core/pipeline/policies/_retry.py: 500 is retried like 502 to 504, also in the rows of cloud.ini.
# 449: "retry with", learn.microsoft.com, "HTTP status codes for Azure Cosmos DB".
_AZURE_PASSING = frozenset({449, 500})

# msal/throttled_http_client.py, NormalizedResponse.raise_for_status(): it keeps the text only.
msal_answer: Probe = status_in_text(
    r"HTTP Error: ([0-9]{3})\Z", evidence="status={} in the message", passing=_AZURE_PASSING
)
