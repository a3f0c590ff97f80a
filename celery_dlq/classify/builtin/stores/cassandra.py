"""Cassandra and Scylla through cassandra-driver, and its cqlengine."""

from __future__ import annotations

from celery_dlq.classify.builtin.behind import lasting_cause, refusal
from celery_dlq.classify.evidence import read
from celery_dlq.classify.table import Finding, Row, network, probed, terminal, transient, within
from celery_dlq.model.states import Verdict

_HOST_LIMIT = 1_000

# What a Cassandra host answers that every attempt will meet again.
_REFUSALS = frozenset({"cassandra.AuthenticationFailed", "cassandra.protocol.BadCredentials"})


def no_host(exc: BaseException) -> Finding:
    """cassandra/cluster.py: ``errors`` maps hosts to what each of them raised."""
    errors = read(exc, "errors")
    values = list(errors.values())[:_HOST_LIMIT] if type(errors) is dict else []
    for error in values:
        if not issubclass(type(error), BaseException):
            continue
        found = refusal(error, "cassandra.host", _REFUSALS) or lasting_cause(error)
        if found is not None:
            return found
    return Finding(Verdict.TRANSIENT, "cassandra.host", f"{len(values)} hosts did not answer")


ROWS: tuple[Row, ...] = (
    # cassandra/__init__.py, cluster.py, connection.py, protocol.py.
    probed("cassandra.host", no_host, "what each host raised", "cassandra.cluster.NoHostAvailable"),
    transient(
        "cassandra.busy",
        *within("cassandra", "OperationTimedOut Unavailable Timeout RateLimitReached"),
        *within(
            "cassandra.protocol",
            "UnavailableErrorMessage ReadTimeoutErrorMessage WriteTimeoutErrorMessage TruncateError "
            "OverloadedErrorMessage IsBootstrappingErrorMessage RateLimitReachedException",
        ),
        "cassandra.query.TraceUnavailable",
    ),
    network("cassandra.network", "cassandra.connection.ConnectionException"),
    transient(
        "cassandra.pool",
        "cassandra.connection.ConnectionBusy",
        "cassandra.pool.NoConnectionsAvailable",
    ),
    transient("cassandra.network", "cassandra.segment.CrcException"),
    terminal(
        "cassandra.refused",
        "cassandra.DriverException",
        "cassandra.protocol.ErrorMessage",
        *within("cassandra.protocol", "InternalError NotSupportedError"),
        *within("cassandra.connection", "ProtocolVersionUnsupported ProtocolError"),
        *within("cassandra.cluster", "QueryExhausted UserTypeDoesNotExist"),
        "cassandra.cqlengine.CQLEngineException",
    ),
)
