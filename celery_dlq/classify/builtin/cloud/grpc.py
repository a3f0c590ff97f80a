"""gRPC: the status codes, and the classes of grpcio, grpc.aio and its older interfaces."""

from __future__ import annotations

from celery_dlq.classify.evidence import call, number, read, text_of
from celery_dlq.classify.table import Finding, probed, terminal, transient, within
from celery_dlq.model.states import Verdict

# AIP-194 calls only UNAVAILABLE safe for a client to repeat by itself, and sends ABORTED "to a
# higher level", which is what a task is. grpc.io/docs/guides/status-codes: a deadline that has
# passed and a resource that is exhausted are conditions of the moment.
TRANSIENT_NAMES = frozenset({"UNAVAILABLE", "ABORTED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"})

# google/rpc/code.proto, in the order of the numbers.
_NAMES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
    "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
    "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip

# BoringSSL's reason, which grpc quotes in the details of an UNAVAILABLE.
_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"


def code_name(code: object) -> str | None:
    """The name of a status code, from ``grpc.StatusCode``, another enum, or its number."""
    name = text_of(read(code, "name"))
    if name in _NAMES:
        return name
    found = number(code)
    return _NAMES[found] if found is not None and 0 <= found < len(_NAMES) else None


def grpc_code(exc: BaseException) -> Finding | None:
    """The answer of ``code()``; the details where the server's certificate is what failed."""
    name = code_name(call(exc, "code"))
    if name is None:
        return None
    if name == "UNAVAILABLE" and _CERTIFICATE in (text_of(call(exc, "details")) or ""):
        return Finding(Verdict.TERMINAL, "tls.certificate", f"details say {_CERTIFICATE}")
    verdict = Verdict.TRANSIENT if name in TRANSIENT_NAMES else Verdict.TERMINAL
    return Finding(verdict, "grpc.code", f"code={name}")


def grpclib_status(exc: BaseException) -> Finding | None:
    """``status`` of grpclib's only error."""
    name = code_name(read(exc, "status"))
    if name is None:
        return None
    verdict = Verdict.TRANSIENT if name in TRANSIENT_NAMES else Verdict.TERMINAL
    return Finding(verdict, "grpc.code", f"status={name}")


ROWS = (
    # grpc/__init__.py; the errors of calls are RpcError and Call at once.
    probed("grpc.code", grpc_code, "the status in code()", "grpc.RpcError"),
    transient("grpc.timeout", "grpc.FutureTimeoutError"),
    terminal("grpc.cancelled", "grpc.FutureCancelledError"),
    # grpc/_cython/_cygrpc/aio: the caller's mistakes, and a handler's own abort.
    terminal("grpc.usage", *within("grpc._cython.cygrpc", "UsageError AbortError InternalError")),
    terminal("grpc.usage", "grpc.experimental.UsageError"),
    # grpc/framework, the interface before 1.0.
    transient("grpc.timeout", "grpc.framework.foundation.future.TimeoutError"),
    transient(
        "grpc.network",
        *within("grpc.framework.interfaces.face.face", "NetworkError ExpirationError"),
    ),
    terminal("grpc.cancelled", "grpc.framework.foundation.future.CancelledError"),
    terminal(
        "grpc.usage",
        *within("grpc.framework.interfaces.face.face", "AbortionError NoSuchMethodError"),
    ),
    # grpclib/exceptions.py.
    probed("grpc.code", grpclib_status, "status", "grpclib.exceptions.GRPCError"),
    transient("grpc.network", "grpclib.exceptions.StreamTerminatedError"),
    terminal("grpc.usage", "grpclib.exceptions.ProtocolError"),
)
