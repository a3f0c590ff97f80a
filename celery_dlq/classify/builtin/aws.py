"""AWS: botocore, boto3 and s3transfer. The service's own code decides, then its status."""

from __future__ import annotations

from itertools import islice

from celery_dlq.classify.builtin.http import status_verdict
from celery_dlq.classify.evidence import mapping_item, number, read, text_of
from celery_dlq.classify.table import Finding, transient_if
from celery_dlq.model.states import Verdict


def _codes(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _lower(codes: frozenset[str]) -> frozenset[str]:
    # Event streams spell them in camel case: internalServerException.
    return frozenset(code.lower() for code in codes)


# botocore/retries/standard.py: ThrottledRetryableChecker, TransientRetryableChecker.
_THROTTLES = _codes(
    "Throttling ThrottlingException ThrottledException RequestThrottledException RequestThrottled "
    "TooManyRequestsException ProvisionedThroughputExceededException TransactionInProgressException "
    "RequestLimitExceeded BandwidthLimitExceeded LimitExceededException SlowDown "
    "EC2ThrottledException PriorRequestNotComplete RequestTimeout RequestTimeoutException"
)
# botocore/data/_retry.json: what single services add. S3 answers 409 ConditionalRequestConflict
# and OperationAborted to writes at the same time: "try again" (S3 API reference, Error responses).
_LEGACY = _codes(
    "BadDigest IDPCommunicationError ThrottledRequestException TooManyRequestException "
    "ThrottlingError ReplicatedWriteConflictException RetryableConflictException "
    "TransactionConflict TransactionConflictException OperationAborted ConditionalRequestConflict"
)
# Exceptions that botocore/data/*/service-2.json marks with "fault", or with a status of 5xx, for
# failures of the service itself; named because stubs and some services give them another status.
_FAULTS = _codes(
    "InternalError InternalFailure InternalFailureException InternalServerError "
    "InternalServerException InternalServerErrorException InternalServiceError "
    "InternalServiceException InternalServiceErrorException InternalServiceFault InternalException "
    "InternalErrorException InternalDependencyException InternalStreamFailure ServerException "
    "ServerInternalException ServiceException ServiceFailure ServiceFailureException ServiceFault "
    "ServiceInternalErrorException ServiceUnavailable ServiceUnavailableException "
    "ServiceUnavailableError Unavailable BadGatewayException GatewayTimeoutException "
    "GatewayTimedOutException DependencyTimeout DependencyTimeoutException KMSInternalException "
    "WAFInternalErrorException CloudHsmInternalException CloudHsmInternalFailureException "
    "ModelNotReadyException ModelTimeoutException ResourceNotReadyException ENINotReadyException "
    "KeyUnavailableException DatabaseUnavailableException StreamUnavailable InsufficientCapacity "
    "InsufficientCapacityException InsufficientInstanceCapacity InsufficientThroughputCapacity "
    "IdempotentCallInProgress NetworkFailureException ClientTimeoutException QueryTimeoutException"
)
TRANSIENT_CODES = _THROTTLES | _LEGACY | _FAULTS
_PASSING = _lower(TRANSIENT_CODES)

# Lambda answers 502 for mistakes in the function's own configuration (Lambda API, Invoke).
_LASTING = _lower(
    _codes(
        "InvalidRuntimeException InvalidZipFileException InvalidSecurityGroupIDException "
        "InvalidSubnetIDException KMSAccessDeniedException KMSDisabledException "
        "KMSInvalidStateException KMSNotFoundException EC2AccessDeniedException NotImplemented"
    )
)

# DynamoDB API reference, TransactWriteItems: why each item of a transaction was refused.
_PASSING_REASONS = _lower(
    _codes(
        "TransactionConflict ThrottlingError ProvisionedThroughputExceeded RequestLimitExceeded "
        "InternalServerError"
    )
)
_REASON_LIMIT = 100


def aws_code(exc: BaseException) -> Finding | None:
    """``response["Error"]["Code"]``, for cancelled transactions their reasons, else the status."""
    return _by_answer(read(exc, "response"))


def _by_answer(answer: object) -> Finding | None:
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
    found = _by_answer(read(exc, "last_response"))
    return found or Finding(Verdict.TERMINAL, "aws.waiter", "a state that it cannot leave")
