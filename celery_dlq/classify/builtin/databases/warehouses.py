"""Warehouses that are queried over HTTP: Snowflake and Trino."""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.behind import unless_lasting
from celery_dlq.classify.builtin.http import status_verdict
from celery_dlq.classify.evidence import bases, dotted_name, message, read, text_of, vendor_code
from celery_dlq.classify.table import Finding, Row, network, probed, terminal, transient, within
from celery_dlq.model.states import Verdict

# snowflake/connector/errorcode.py: closed, no answer, timed out, an answer to try again, a chunk or a
# file that did not come. Then the server's: 625 a lock that is held, 630 a statement timeout.
SNOWFLAKE_NUMBERS = frozenset(
    {250002, 250003, 250005, 251011, 251012, 252010, 253002, 253003, 625, 630}
)
# snowflake/connector/auth/_auth.py: an OperationalError where the service was out of reach, but a
# DatabaseError where it refused the login. Both have the SQLSTATE 08001.
_NOT_CONNECTED = 250001
_UNREACHABLE = "snowflake.connector.errors.OperationalError"

# Trino, core/trino-spi StandardErrorCode: nodes that are gone, starting, or short of room for all.
TRINO_NAMES = frozenset(
    {
        "ABANDONED_TASK", "ADMINISTRATIVELY_PREEMPTED", "CLUSTER_OUT_OF_MEMORY", "NO_NODES_AVAILABLE",
        "PAGE_TRANSPORT_ERROR", "PAGE_TRANSPORT_TIMEOUT", "QUERY_QUEUE_FULL", "REMOTE_HOST_GONE",
        "REMOTE_TASK_ERROR", "REMOTE_TASK_MISMATCH", "SERVER_SHUTTING_DOWN", "SERVER_STARTING_UP",
        "TOO_MANY_REQUESTS_FAILED", "TRANSACTION_CONFLICT",
    }
)  # fmt: skip

# trino/client.py, raise_response_error().
_TRINO_STATUS = re.compile(r"error ([0-9]{3})\b")


def snowflake_error(exc: BaseException) -> Finding | None:
    """``errno``; -1 stands for none, and the SQLSTATE of a refused login is that of a lost line."""
    found = vendor_code(exc)
    if found is None or found[0] <= 0:
        return None
    code, source = found
    evidence = f"errno={code} from {source}"
    names = [dotted_name(base) for base in bases(type(exc))]
    if code in SNOWFLAKE_NUMBERS or (code == _NOT_CONNECTED and _UNREACHABLE in names):
        return unless_lasting(exc, "snowflake.errno", evidence)
    return Finding(Verdict.TERMINAL, "snowflake.errno", evidence)


def trino_name(exc: BaseException) -> Finding:
    """``error_name``; a mistake of the query, or of a catalog behind it, stays."""
    name = text_of(read(exc, "error_name"))
    verdict = Verdict.TRANSIENT if name in TRINO_NAMES else Verdict.TERMINAL
    return Finding(verdict, "trino.name", f"error_name={name}")


def trino_answer(exc: BaseException) -> Finding | None:
    """HttpError: the status stands in the text only."""
    match = _TRINO_STATUS.match(message(exc))
    if match is None:
        return None
    return Finding(status_verdict(int(match[1])), "http.status", f"status={match[1]}")


_SNOWFLAKE = (
    # snowflake/connector/errors.py: one class for each status that the connector itself tries again,
    # 400, 403 and 405 among them, which will not change.
    transient(
        "snowflake.answer",
        *within(
            "snowflake.connector.errors",
            "BadGatewayError GatewayTimeoutError InternalServerError OtherHTTPRetryableError "
            "RequestExceedMaxRetryError RequestTimeoutError ServiceUnavailableError TooManyRequests",
        ),
    ),
    terminal(
        "snowflake.answer",
        *within("snowflake.connector.errors", "BadRequest ForbiddenError MethodNotAllowed"),
    ),
    probed(
        "snowflake.errno",
        snowflake_error,
        "errno, else its cause",
        "snowflake.connector.errors.Error",
    ),
)

_TRINO = (
    # trino/exceptions.py.
    transient(
        "trino.answer", *within("trino.exceptions", "Http502Error Http503Error Http504Error")
    ),
    probed("http.status", trino_answer, "the status in the message", "trino.exceptions.HttpError"),
    network("trino.network", "trino.exceptions.TrinoConnectionError"),
    probed("trino.name", trino_name, "error_name", "trino.exceptions.TrinoQueryError"),
    terminal("trino.auth", "trino.exceptions.TrinoAuthError"),
)

ROWS: tuple[Row, ...] = (*_SNOWFLAKE, *_TRINO)
