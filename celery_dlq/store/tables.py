"""The tables: letters, their attempts, the rollups, the audit, and deliveries. Nothing here behaves."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    UniqueConstraint,
)

from celery_dlq.store.columns import BIG_ID, BYTES, LONG_TEXT, Moment, name

#: Alembic's version table, our own so that a host application's is never touched.
VERSION_TABLE = "celery_dlq_version"

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}

letter = Table(
    "celery_dead_letter",
    metadata,
    Column("id", BIG_ID, primary_key=True, autoincrement=True),
    Column("task_id", name(), nullable=False),
    Column("task", name(), nullable=False),
    Column("state", name(16), nullable=False),
    Column("reason", name(16), nullable=False),
    Column("verdict", name(16), nullable=False),
    Column("rule", name(), nullable=False),
    Column("evidence", LONG_TEXT, nullable=False),
    Column("path", LONG_TEXT, nullable=False),
    Column("exception_type", name(), nullable=False),
    Column("message", LONG_TEXT, nullable=False),
    Column("traceback", LONG_TEXT, nullable=False),
    Column("fingerprint", name(64), nullable=False),
    Column("args", LONG_TEXT, nullable=False),
    Column("kwargs", LONG_TEXT, nullable=False),
    Column("first_failed_at", Moment, nullable=False),
    Column("last_failed_at", Moment, nullable=False),
    # The redrive that the last failure belongs to; redrive_count also counts the one under way.
    Column("last_redrive", Integer, nullable=False),
    Column("redrive_count", Integer, nullable=False),
    Column("attempt_count", Integer, nullable=False),
    Column("worker", name(), nullable=False),
    Column("pid", BigInteger),
    Column("release", name(), nullable=False),
    Column("root_id", name()),
    Column("parent_id", name()),
    Column("group_id", name()),
    Column("correlation_id", name()),
    Column("canvas", name(16), nullable=False),
    Column("tags", LONG_TEXT, nullable=False),
    Column("body", BYTES, nullable=False),
    Column("content_type", name(), nullable=False),
    Column("content_encoding", name(), nullable=False),
    Column("headers", LONG_TEXT, nullable=False),
    Column("properties", LONG_TEXT, nullable=False),
    Column("exchange", name(), nullable=False),
    Column("routing_key", name(), nullable=False),
    Column("queue", name(), nullable=False),
    Column("claim_token", name(64)),
    Column("lease_expires_at", Moment),
    Column("closed_at", Moment),
    Column("closed_by", name(), nullable=False),
    Column("closed_reason", LONG_TEXT, nullable=False),
    UniqueConstraint("task_id"),
    **_OPTIONS,
)

# Lists and claims ask for one state at a time in the order of the last failure, either way round.
# The reason rides along so that counting by reason reads the index only.
Index(None, letter.c.state, letter.c.last_failed_at, letter.c.id, letter.c.reason)
for _column in (letter.c.task, letter.c.exception_type, letter.c.fingerprint, letter.c.queue):
    Index(None, _column, letter.c.state, letter.c.last_failed_at, letter.c.id)

attempt = Table(
    "celery_dead_letter_attempt",
    metadata,
    Column("task_id", name(), nullable=False),
    Column("redrive", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("failed_at", Moment, nullable=False),
    Column("exception_type", name(), nullable=False),
    Column("message", LONG_TEXT, nullable=False),
    Column("verdict", name(16), nullable=False),
    Column("rule", name(), nullable=False),
    Column("delay_s", Double),
    Column("worker", name(), nullable=False),
    Column("pid", BigInteger),
    PrimaryKeyConstraint("task_id", "redrive", "number", "failed_at"),
    **_OPTIONS,
)

# A fingerprint is a hash over task and exception type, so this is one row per fingerprint. They are
# in the key so that counts by task stay right whatever made the fingerprint.
group = Table(
    "celery_dead_letter_group",
    metadata,
    Column("fingerprint", name(64), nullable=False),
    Column("task", name(), nullable=False),
    Column("exception_type", name(), nullable=False),
    Column("message", LONG_TEXT, nullable=False),
    Column("open_count", BigInteger, nullable=False),
    Column("resolved_count", BigInteger, nullable=False),
    Column("discarded_count", BigInteger, nullable=False),
    Column("total_count", BigInteger, nullable=False),
    Column("first_seen_at", Moment, nullable=False),
    Column("last_seen_at", Moment, nullable=False),
    PrimaryKeyConstraint("fingerprint", "task", "exception_type"),
    **_OPTIONS,
)

arrival = Table(
    "celery_dead_letter_arrival",
    metadata,
    Column("minute", Moment, nullable=False),
    Column("task", name(), nullable=False),
    Column("exception_type", name(), nullable=False),
    Column("count", BigInteger, nullable=False),
    PrimaryKeyConstraint("minute", "task", "exception_type"),
    **_OPTIONS,
)

audit = Table(
    "celery_dlq_audit",
    metadata,
    Column("id", BIG_ID, primary_key=True, autoincrement=True),
    Column("at", Moment, nullable=False),
    Column("who", name(), nullable=False),
    Column("act", name(64), nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("why", LONG_TEXT, nullable=False),
    Column("detail", LONG_TEXT, nullable=False),
    **_OPTIONS,
)

# Runs of redelivered messages that have not ended; what ends takes its rows along.
delivery = Table(
    "celery_dlq_delivery",
    metadata,
    Column("task_id", name(), nullable=False),
    Column("task", name(), nullable=False),
    Column("redrive", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("worker", name(), nullable=False),
    Column("process", name(), nullable=False),
    Column("alone", Boolean, nullable=False),
    Column("death", LONG_TEXT, nullable=False),
    PrimaryKeyConstraint("task_id", "redrive", "attempt", "started_at"),
    **_OPTIONS,
)
Index(None, delivery.c.started_at)

version = Table(VERSION_TABLE, MetaData(), Column("version_num", String(32), primary_key=True))
