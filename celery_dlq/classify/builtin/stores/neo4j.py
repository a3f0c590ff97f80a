"""Neo4j."""

from __future__ import annotations

from celery_dlq.classify.builtin.http import in_turn
from celery_dlq.classify.evidence import call, read, text_of
from celery_dlq.classify.table import (
    Finding,
    Row,
    network,
    probed,
    terminal,
    transient,
    within,
)
from celery_dlq.model.states import Verdict


def retryable(exc: BaseException) -> Finding | None:
    """``is_retryable()``, which the driver also sets where it has renewed a token."""
    if call(exc, "is_retryable") is not True:
        return None
    return Finding(Verdict.TRANSIENT, "neo4j.retryable", "is_retryable()=True")


def neo4j_code(exc: BaseException) -> Finding:
    """The server's code names its class: ``Neo.TransientError.…`` (Neo4j status codes)."""
    code = text_of(read(exc, "code")) or ""
    verdict = Verdict.TRANSIENT if code.startswith("Neo.TransientError.") else Verdict.TERMINAL
    return Finding(verdict, "neo4j.code", f"code={code[:80]}")


ROWS: tuple[Row, ...] = (
    # neo4j/exceptions.py, is_retryable(): what it says of its classes.
    transient(
        "neo4j.retryable",
        *within(
            "neo4j.exceptions", "TransientError SessionExpired ConnectionAcquisitionTimeoutError"
        ),
    ),
    network("neo4j.network", "neo4j.exceptions.ServiceUnavailable"),
    # Whether the commit took place is not known; a second one might double it.
    terminal("neo4j.commit", "neo4j.exceptions.IncompleteCommit"),
    probed(
        "neo4j.code",
        in_turn(retryable, neo4j_code),
        "is_retryable(), else the class in code",
        "neo4j.exceptions.Neo4jError",
    ),
    probed(
        "neo4j.driver",
        retryable,
        "is_retryable(), else its cause",
        "neo4j.exceptions.DriverError",
    ),
    terminal(
        "neo4j.usage",
        *within(
            "neo4j.exceptions",
            "ConfigurationError SessionError TransactionError ResultError BrokenRecordError",
        ),
    ),
)
