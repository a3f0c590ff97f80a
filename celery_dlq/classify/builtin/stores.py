"""Probes of Redis, MongoDB, Elasticsearch, Cassandra, Neo4j, ClickHouse, Memcached and DuckDB."""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.codes import numbers, texts, words
from celery_dlq.classify.builtin.http import in_turn, status_verdict
from celery_dlq.classify.builtin.stdlib import lasting_cause, lasting_text, refusal, unless_lasting
from celery_dlq.classify.evidence import call, mapping_item, message, number, read, text_of
from celery_dlq.classify.table import Finding, Probe, transient_if
from celery_dlq.model.states import Verdict

#: The most items of one bulk operation that are read.
_ITEM_LIMIT = 10_000

# -- Redis and Valkey: redis-py, valkey-py and coredis ----------------------------------------------

_REDIS_WILL_PASS = words("redis.prefixes")

# redis/client.py, Pipeline.annotate_exception().
_IN_PIPELINE = re.compile(r"Command # [0-9]+ \(.*\) of pipeline caused error: ", re.DOTALL)

# redis/cluster.py: no node of the cluster could be reached, or its redirections do not settle.
_CLUSTER_UNREACHABLE = ("Redis Cluster cannot be connected", "Valkey Cluster cannot be connected")
_CLUSTER_UNSETTLED = ("TTL exhausted", "Too many Cluster redirections", "ERROR sending 'cluster")


def redis_reply(exc: BaseException) -> Finding:
    """The prefix of an error reply: ``status_code`` since redis-py 8, else the first word."""
    text = text_of(read(exc, "status_code")) or _IN_PIPELINE.sub("", message(exc), count=1)
    prefix = text.partition(" ")[0]
    return transient_if(prefix in _REDIS_WILL_PASS, "redis.reply", f"prefix={prefix[:40]}")


def redis_lock(exc: BaseException) -> Finding:
    """redis/lock.py: not getting a lock will pass; misusing one will not."""
    waited = message(exc).startswith("Unable to acquire lock")
    return transient_if(waited, "redis.lock", "not acquired in time" if waited else "lock misused")


def redis_cluster(exc: BaseException) -> Finding:
    """Whether the nodes were out of reach, the slots moved on, or the cluster was misused."""
    text = message(exc)
    evidence = f"message {text[:40]!r}"
    if text.startswith(_CLUSTER_UNREACHABLE) and "Cluster mode is not enabled" not in text:
        refused = refusal(exc, "redis.auth", words("redis.refusals"))
        return refused or unless_lasting(exc, "redis.cluster", evidence)
    return transient_if(text.startswith(_CLUSTER_UNSETTLED), "redis.cluster", evidence)


# -- MongoDB: PyMongo, and Motor, which raises the same ---------------------------------------------

MONGO_CODES, _MONGO_LABELS = numbers("mongo.codes"), words("mongo.labels")


def _mongo_label(exc: BaseException) -> Finding | None:
    """``errorLabels`` of the server's answer."""
    labels = mapping_item(read(exc, "details"), "errorLabels")
    found = [item for item in labels if type(item) is str] if type(labels) is list else []
    known = _MONGO_LABELS.intersection(found)
    if not known:
        return None
    return Finding(Verdict.TRANSIENT, "mongo.label", f"label={min(known)}")


def mongo_operation(exc: BaseException) -> Finding:
    """The labels, else the code, of a failed operation."""
    code = number(read(exc, "code"))
    return _mongo_label(exc) or transient_if(code in MONGO_CODES, "mongo.code", f"code={code}")


def mongo_bulk_write(exc: BaseException) -> Finding:
    """The write concern decides only if every document of the bulk write was written."""
    details = read(exc, "details")
    if mapping_item(details, "writeErrors"):
        return Finding(Verdict.TERMINAL, "mongo.bulk", "some documents were refused")
    errors = mapping_item(details, "writeConcernErrors")
    if type(errors) is not list or not errors:
        return _mongo_label(exc) or Finding(
            Verdict.TERMINAL, "mongo.bulk", "no write concern error"
        )
    codes = [number(mapping_item(error, "code")) for error in errors[:_ITEM_LIMIT]]
    passes = all(code in MONGO_CODES for code in codes)
    listed = ",".join(sorted({str(code) for code in codes}))
    return transient_if(passes, "mongo.bulk", f"code={listed} from writeConcernErrors")


def mongo_client_bulk_write(exc: BaseException) -> Finding | None:
    """None if an exception in ``error`` ended it, which then decides; otherwise single documents were
    refused."""
    if issubclass(type(read(exc, "error")), BaseException):
        return None
    return Finding(Verdict.TERMINAL, "mongo.bulk", "some documents were refused")


def mongo_unreachable(exc: BaseException) -> Finding | None:
    """The message collects the error of each host; a certificate is mentioned nowhere else."""
    return lasting_text(message(exc))


def mongo_configuration(exc: BaseException) -> Finding:
    """A DNS server that did not answer in time is reported as a wrong configuration."""
    late = "resolution lifetime expired" in message(exc)
    return transient_if(late, "mongo.configuration", "DNS timed out" if late else "configuration")


# -- Elasticsearch and OpenSearch -------------------------------------------------------------------


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

# A host gives these answers to every attempt.
_CASSANDRA_REFUSALS = frozenset(
    {"cassandra.AuthenticationFailed", "cassandra.protocol.BadCredentials"}
)


def cassandra_host(exc: BaseException) -> Finding:
    """cassandra/cluster.py: ``errors`` maps each host to its exception."""
    errors = read(exc, "errors")
    values = list(errors.values())[:_HOST_LIMIT] if type(errors) is dict else []
    for error in values:
        if not issubclass(type(error), BaseException):
            continue
        found = refusal(error, "cassandra.host", _CASSANDRA_REFUSALS) or lasting_cause(error)
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


neo4j_error: Probe = in_turn(neo4j_retryable, _neo4j_code)

# -- ClickHouse -------------------------------------------------------------------------------------

CLICKHOUSE_CODES = numbers("clickhouse.codes")
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


def by_texts(_rule: str, name: str) -> Probe:
    """A probe for a row: one of these texts is in the message; other errors are refusals."""
    pattern = texts(name)

    def probe(exc: BaseException) -> Finding:
        found = pattern.search(message(exc))
        evidence = f"message has {found[0]!r}" if found is not None else "refused"
        return transient_if(found is not None, "memcached.error", evidence)

    return probe


# -- DuckDB -----------------------------------------------------------------------------------------

# duckdb: src/storage/single_file_block_manager.cpp and the file lock of another process.
_DUCKDB_LOCK = "Could not set lock on file"


def duckdb_io(exc: BaseException) -> Finding:
    """Another process has the file open; any other input or output error stays."""
    locked = _DUCKDB_LOCK in message(exc)
    return transient_if(locked, "duckdb.io", "the file is locked" if locked else "not about a lock")
