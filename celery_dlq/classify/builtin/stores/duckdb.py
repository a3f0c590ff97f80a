"""DuckDB."""

from __future__ import annotations

from celery_dlq.classify.builtin.http import http_status
from celery_dlq.classify.evidence import message
from celery_dlq.classify.table import Finding, Row, probed, terminal, transient
from celery_dlq.model.states import Verdict

# duckdb: src/storage/single_file_block_manager.cpp and the file lock of another process.
_DUCKDB_LOCK = "Could not set lock on file"


def duckdb_io(exc: BaseException) -> Finding:
    """Another process has the file open; any other input or output error stays."""
    locked = _DUCKDB_LOCK in message(exc)
    verdict = Verdict.TRANSIENT if locked else Verdict.TERMINAL
    return Finding(verdict, "duckdb.io", "the file is locked" if locked else "not about a lock")


ROWS: tuple[Row, ...] = tuple(
    row
    for module in ("_duckdb", "duckdb")
    for row in (
        # Optimistic concurrency: "Conflict on update!", "write-write conflict".
        transient("duckdb.conflict", f"{module}.TransactionException"),
        probed("duckdb.io", duckdb_io, "whether the file is locked", f"{module}.IOException"),
        probed(
            "http.status", http_status(("status_code",)), "status_code", f"{module}.HTTPException"
        ),
        terminal("duckdb.error", f"{module}.Error"),
    )
)
