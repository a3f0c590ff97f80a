"""Probes of data stores: Elasticsearch, Cassandra, Neo4j, ClickHouse, Memcached and DuckDB."""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.behind import (
    lasting_cause,
    lasting_text,
    refusal,
    unless_lasting,
)
from celery_dlq.classify.builtin.http import http_status, in_turn, status_verdict
from celery_dlq.classify.evidence import call, mapping_item, message, number, read, text_of
from celery_dlq.classify.table import Finding, Probe, transient_if
from celery_dlq.model.states import Verdict

# -- Elasticsearch and OpenSearch -------------------------------------------------------------------

meta_status = http_status(("meta", "status"), ("status_code",))

_ITEM_LIMIT = 10_000


def search_unreachable(exc: BaseException) -> Finding | None:
    """elastic_transport: ``errors`` are the errors of the nodes."""
    errors = read(exc, "errors")
    for error in errors if type(errors) is tuple else ():
        found = lasting_cause(error) if issubclass(type(error), BaseException) else None
        if found is not None:
            return found
    return lasting_text(read(exc, "message"))


def search_bulk(exc: BaseException) -> Finding:
    """``errors`` lists the refused items; the status of each has to be transient."""
    items = read(exc, "errors")
    items = items[:_ITEM_LIMIT] if type(items) is list else []
    codes = [_item_status(item) for item in items]
    passes = bool(codes) and all(
        code and status_verdict(code) is Verdict.TRANSIENT for code in codes
    )
    listed = ",".join(sorted({str(code) for code in codes}))
    return transient_if(passes, "search.bulk", f"status={listed} from errors")


def _item_status(item: object) -> int | None:
    """``{"index": {"status": 429, ...}}``, whatever the operation is called."""
    for operation in ("index", "create", "update", "delete"):
        status = number(mapping_item(item, operation, "status"))
        if status is not None:
            return status
    return None


# -- Cassandra --------------------------------------------------------------------------------------

_HOST_LIMIT = 1_000

# Every attempt will meet these answers of a host again.
_REFUSALS = frozenset({"cassandra.AuthenticationFailed", "cassandra.protocol.BadCredentials"})


def no_host(exc: BaseException) -> Finding:
    """cassandra/cluster.py: ``errors`` maps each host to its exception."""
    errors = read(exc, "errors")
    values = list(errors.values())[:_HOST_LIMIT] if type(errors) is dict else []
    for error in values:
        if not issubclass(type(error), BaseException):
            continue
        found = refusal(error, "cassandra.host", _REFUSALS) or lasting_cause(error)
        if found is not None:
            return found
    return Finding(Verdict.TRANSIENT, "cassandra.host", f"{len(values)} hosts did not answer")


# -- Neo4j ------------------------------------------------------------------------------------------


def neo4j_retryable(exc: BaseException) -> Finding | None:
    """``is_retryable()``, which is also true after the driver has renewed a token."""
    if call(exc, "is_retryable") is not True:
        return None
    return Finding(Verdict.TRANSIENT, "neo4j.retryable", "is_retryable()=True")


def _neo4j_code(exc: BaseException) -> Finding:
    """The server's code names its class: ``Neo.TransientError.…`` (Neo4j status codes)."""
    code = text_of(read(exc, "code")) or ""
    passes = code.startswith("Neo.TransientError.")
    return transient_if(passes, "neo4j.code", f"code={code[:80]}")


neo4j_error = in_turn(neo4j_retryable, _neo4j_code)

# -- ClickHouse -------------------------------------------------------------------------------------

# ClickHouse src/Common/ErrorCodes.cpp: end of stream, timeout, limits of queries, connections and
# parts, network, Keeper, replicas, memory, S3.
CLICKHOUSE_CODES = frozenset(
    {
        3, 32, 159, 201, 202, 203, 209, 210, 225, 236, 241, 242, 252, 279, 285, 286, 319, 364, 369, 425,
        439, 473, 499, 574, 999,
    }
)  # fmt: skip
_CODE_IN_TEXT = re.compile(r"Code: ([0-9]{1,4})\.")
_STATUS_IN_TEXT = re.compile(r"(?:response code|HTTP status|status code) ([0-9]{3})\b")
_NETWORK_ERROR, _TIMED_OUT = 210, 209


def clickhouse(exc: BaseException) -> Finding | None:
    """The number in ``code`` or in the text, else the status of an answer without one."""
    text = message(exc)
    in_text = _CODE_IN_TEXT.search(text)
    code = number(read(exc, "code")) or (int(in_text[1]) if in_text else None)
    if code in (_NETWORK_ERROR, _TIMED_OUT):
        return lasting_text(text) or unless_lasting(exc, "clickhouse.code", f"code={code}")
    if code:
        return transient_if(code in CLICKHOUSE_CODES, "clickhouse.code", f"code={code}")
    status = _STATUS_IN_TEXT.search(text)
    if status is None:
        return None
    return Finding(status_verdict(int(status[1])), "http.status", f"status={status[1]} in the text")


# -- Memcached --------------------------------------------------------------------------------------

# pymemcache/exceptions.py, client/hash.py; memcached's memory shortage and its limit of one item.
_MEMCACHED_WILL_PASS = re.compile(
    r"All servers (?:seem|appear) to be down|out of memory|temporary failure|\bbusy\b"
)
# libmemcached/strerror.cc. pylibmc has classes for few of these errors.
_LIBMEMCACHED_WILL_PASS = re.compile(
    r"SERVER HAS FAILED|SERVER IS MARKED DEAD|TIMEOUT OCCURRED|CONNECTION FAILURE|READ FAILURE"
    r"|WRITE FAILURE|SERVER HAS TEMPORARILY|SYSTEM ERROR"
)


def _by_words(words: re.Pattern[str]) -> Probe:
    """A probe for words in the message; other errors are refusals of a server or the client."""

    def probe(exc: BaseException) -> Finding:
        found = words.search(message(exc))
        evidence = f"message has {found[0]!r}" if found is not None else "refused"
        return transient_if(found is not None, "memcached.error", evidence)

    return probe


memcached = _by_words(_MEMCACHED_WILL_PASS)
libmemcached = _by_words(_LIBMEMCACHED_WILL_PASS)

# -- DuckDB -----------------------------------------------------------------------------------------

# duckdb: src/storage/single_file_block_manager.cpp and the file lock of another process.
_DUCKDB_LOCK = "Could not set lock on file"


def duckdb_io(exc: BaseException) -> Finding:
    """Another process has the file open; any other input or output error stays."""
    locked = _DUCKDB_LOCK in message(exc)
    return transient_if(locked, "duckdb.io", "the file is locked" if locked else "not about a lock")
