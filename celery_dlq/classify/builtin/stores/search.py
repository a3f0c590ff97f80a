"""Elasticsearch and OpenSearch."""

from __future__ import annotations

from celery_dlq.classify.builtin.behind import lasting_cause, lasting_text
from celery_dlq.classify.builtin.http import http_status, status_verdict
from celery_dlq.classify.evidence import mapping_item, number, read
from celery_dlq.classify.table import Finding, Row, network, probed, terminal, transient, within
from celery_dlq.model.states import Verdict

_meta_status = http_status(("meta", "status"), ("status_code",))
_status_code = http_status(("status_code",))

_ITEM_LIMIT = 10_000


def unreachable(exc: BaseException) -> Finding | None:
    """``errors`` holds what each node answered to the connection."""
    errors = read(exc, "errors")
    for error in errors if type(errors) is tuple else ():
        found = lasting_cause(error) if issubclass(type(error), BaseException) else None
        if found is not None:
            return found
    return lasting_text(read(exc, "message"))


def bulk(exc: BaseException) -> Finding:
    """``errors`` lists the refused items; each has to be one that passes."""
    items = read(exc, "errors")
    items = items[:_ITEM_LIMIT] if type(items) is list else []
    codes = [_item_status(item) for item in items]
    passes = bool(codes) and all(
        code and status_verdict(code) is Verdict.TRANSIENT for code in codes
    )
    listed = ",".join(sorted({str(code) for code in codes}))
    verdict = Verdict.TRANSIENT if passes else Verdict.TERMINAL
    return Finding(verdict, "search.bulk", f"status={listed} from errors")


def _item_status(item: object) -> int | None:
    """``{"index": {"status": 429, ...}}``, whatever the operation is called."""
    for operation in ("index", "create", "update", "delete"):
        status = number(mapping_item(item, operation, "status"))
        if status is not None:
            return status
    return None


_ELASTIC = (
    # elastic_transport/_exceptions.py, elasticsearch/exceptions.py; ``meta.status`` is the answer's.
    probed("http.status", _meta_status, "meta.status", "elastic_transport.ApiError"),
    probed("http.status", _status_code, "status_code", "elastic_transport.TransportError"),
    transient("search.timeout", "elastic_transport.ConnectionTimeout"),
    terminal("tls.protocol", "elastic_transport.TlsError"),
    network(
        "search.network",
        *within("elastic_transport", "ConnectionError SniffingError"),
        probe=unreachable,
    ),
    terminal("search.usage", "elastic_transport.SerializationError"),
    terminal(
        "search.usage",
        "elasticsearch.UnsupportedProductError",
        "elasticsearch.dsl.exceptions.ElasticsearchDslException",
    ),
    probed("search.bulk", bulk, "the status of every item", "elasticsearch.helpers.BulkIndexError"),
    terminal("search.scan", "elasticsearch.helpers.ScanError"),
)

# opensearchpy/exceptions.py, and elasticsearch/exceptions.py before version 8, which it is a copy of.
# ``status_code`` is "N/A" or "TIMEOUT" where there was no answer.
_COPIES = tuple(
    row
    for module, helpers in (
        ("opensearchpy.exceptions", "opensearchpy.helpers.errors"),
        ("elasticsearch.exceptions", "elasticsearch.helpers.errors"),
    )
    for row in (
        transient("search.timeout", f"{module}.ConnectionTimeout"),
        terminal("tls.protocol", f"{module}.SSLError"),
        network("search.network", f"{module}.ConnectionError"),
        probed("http.status", _status_code, "status_code", f"{module}.TransportError"),
        terminal("search.usage", *within(module, "SerializationError ImproperlyConfigured")),
        probed("search.bulk", bulk, "the status of every item", f"{helpers}.BulkIndexError"),
        terminal("search.scan", f"{helpers}.ScanError"),
    )
)

ROWS: tuple[Row, ...] = (
    *_ELASTIC,
    *_COPIES,
    terminal("search.usage", "opensearchpy.exceptions.OpenSearchDslException"),
)
