"""The tables: letters and their contents, parked retries, attempts, redrives, rollups, audit, deliveries,
leases, circuits. Nothing here behaves."""

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

#: Characters of an attempt's evidence and path, as many as a decision has.
EVIDENCE_WIDTH = 500

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
    Column("fingerprint", name(64), nullable=False),
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
    Column("content_type", name(), nullable=False),
    Column("content_encoding", name(), nullable=False),
    Column("exchange", name(), nullable=False),
    Column("routing_key", name(), nullable=False),
    Column("queue", name(), nullable=False),
    # The last claim, until something else becomes of the letter. It is claimed while that claim is there.
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

# What is large of each letter. A database writes a row anew, or the pages that it is on, when one value in it
# changes; what changes of a letter is small. What a redrive reads comes first.
content = Table(
    "celery_dead_letter_content",
    metadata,
    # That of the letter.
    Column("id", BIG_ID, primary_key=True, autoincrement=False),
    Column("headers", LONG_TEXT, nullable=False),
    Column("properties", LONG_TEXT, nullable=False),
    Column("body", BYTES, nullable=False),
    Column("args", LONG_TEXT, nullable=False),
    Column("kwargs", LONG_TEXT, nullable=False),
    Column("traceback", LONG_TEXT, nullable=False),
    **_OPTIONS,
)

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
    Column("evidence", name(EVIDENCE_WIDTH), nullable=False, server_default=""),
    Column("path", name(EVIDENCE_WIDTH), nullable=False, server_default=""),
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
    # What people have decided about it: see celery_dlq/group.py.
    Column("status", name(16), nullable=False, server_default="open"),
    Column("status_at", Moment),
    Column("status_by", name(), nullable=False, server_default=""),
    Column("ignored_until", Moment),
    Column("ignored_rate", BigInteger),
    Column("ignored_total", BigInteger),
    Column("resolved_in", name(), nullable=False, server_default=""),
    # The releases that had failed before it was resolved in another one, as JSON.
    Column("failed_in", LONG_TEXT),
    Column("regressed_at", Moment),
    Column("owner", name(), nullable=False, server_default=""),
    Column("note", LONG_TEXT),
    PrimaryKeyConstraint("fingerprint", "task", "exception_type"),
    **_OPTIONS,
)

# Arrivals by group, for trends and rates; and the open letters whose last failure was in that hour, for their
# ages. By the hour, because a group's row of a minute would as a rule count one letter.
trend = Table(
    "celery_dead_letter_trend",
    metadata,
    Column("fingerprint", name(64), nullable=False),
    Column("hour", Moment, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("open_count", BigInteger, nullable=False),
    PrimaryKeyConstraint("fingerprint", "hour"),
    **_OPTIONS,
)
Index(None, trend.c.hour)

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

# Added up over all rows: those made of the letters that were there before the table, and those that
# changes are added to. The four names are too long for a key of MySQL's, so it is a hash of them.
count = Table(
    "celery_dead_letter_count",
    metadata,
    Column("id", name(64), primary_key=True),
    Column("task", name(), nullable=False),
    Column("queue", name(), nullable=False),
    Column("reason", name(16), nullable=False),
    Column("exception_type", name(), nullable=False),
    Column("open_count", BigInteger, nullable=False),
    # These never fall, whatever becomes of the letters.
    Column("arrived_count", BigInteger, nullable=False),
    Column("succeeded_count", BigInteger, nullable=False),
    Column("failed_count", BigInteger, nullable=False),
    Column("first_seen_at", Moment, nullable=False),
    **_OPTIONS,
)

audit = Table(
    "celery_dlq_audit",
    metadata,
    Column("id", BIG_ID, primary_key=True, autoincrement=True),
    Column("at", Moment, nullable=False),
    Column("who", name(), nullable=False),
    # The machine from which it was done.
    Column("host", name(), nullable=False, server_default=""),
    Column("act", name(64), nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("why", LONG_TEXT, nullable=False),
    Column("detail", LONG_TEXT, nullable=False),
    # The letter or the operation that it was about, where it was one.
    Column("subject", name(), nullable=False, server_default=""),
    **_OPTIONS,
)
Index(None, audit.c.subject, audit.c.id)
Index(None, audit.c.at)

operation = Table(
    "celery_dlq_operation",
    metadata,
    Column("id", name(32), primary_key=True),
    Column("state", name(16), nullable=False),
    Column("cause", LONG_TEXT, nullable=False),
    # The filter and the orders, as JSON.
    Column("wanted", LONG_TEXT, nullable=False),
    Column("orders", LONG_TEXT, nullable=False),
    Column("planned", BigInteger, nullable=False),
    Column("who", name(), nullable=False),
    Column("host", name(), nullable=False),
    # For which app, and which broker, its address without the password; empty where that is not known.
    Column("app", name(), nullable=False, server_default=""),
    Column("broker", name(), nullable=False, server_default=""),
    Column("detached", Boolean, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("started_at", Moment),
    Column("ended_at", Moment),
    **_OPTIONS,
)
Index(None, operation.c.created_at)
Index(None, operation.c.ended_at)
Index(None, operation.c.state, operation.c.created_at)

# One letter in one operation. The redrive of two operations is the same when the first was killed
# before it marked the letter as sent.
sending = Table(
    "celery_dead_letter_redrive",
    metadata,
    Column("operation", name(32), nullable=False),
    Column("task_id", name(), nullable=False),
    Column("task", name(), nullable=False),
    Column("redrive", Integer, nullable=False),
    Column("state", name(16), nullable=False),
    # The letter's state before it was claimed.
    Column("was", name(16), nullable=False),
    # The token of the last claim, how often it was claimed, and the copy that a worker has run.
    Column("copy", name(64), nullable=False),
    Column("copies", Integer, nullable=False),
    Column("accepted", name(64)),
    Column("why", LONG_TEXT, nullable=False),
    Column("fingerprint", name(64), nullable=False),
    Column("change", LONG_TEXT, nullable=False),
    Column("claimed_at", Moment, nullable=False),
    # None where it was sent with all of its claim, which is told by the claim's going.
    Column("sent_at", Moment),
    Column("ended_at", Moment),
    PrimaryKeyConstraint("operation", "task_id"),
    **_OPTIONS,
)
Index(None, sending.c.task_id, sending.c.redrive)
# Counts, and the last endings; neither is kept in a row of its own, which all workers would wait for. The
# state is first because PostgreSQL, before its first ANALYZE, would find single letters by the operation.
Index(None, sending.c.state, sending.c.operation, sending.c.ended_at)

# The claims that hold, one row for all letters of each. What they hold is written as if it were sent.
claim = Table(
    "celery_dlq_claim",
    metadata,
    Column("token", name(64), primary_key=True),
    Column("operation", name(32), nullable=False),
    # Those that are neither sent nor given back.
    Column("letters", Integer, nullable=False),
    Column("lease_expires_at", Moment, nullable=False),
    **_OPTIONS,
)

# What people have changed in letters' messages; each row keeps the message as it was.
change = Table(
    "celery_dead_letter_change",
    metadata,
    Column("id", BIG_ID, primary_key=True, autoincrement=True),
    Column("task_id", name(), nullable=False),
    Column("at", Moment, nullable=False),
    Column("who", name(), nullable=False),
    Column("how", name(64), nullable=False),
    Column("diff", LONG_TEXT, nullable=False),
    Column("body", BYTES, nullable=False),
    Column("content_type", name(), nullable=False),
    Column("content_encoding", name(), nullable=False),
    Column("headers", LONG_TEXT, nullable=False),
    Column("properties", LONG_TEXT, nullable=False),
    Column("exchange", name(), nullable=False),
    Column("routing_key", name(), nullable=False),
    Column("queue", name(), nullable=False),
    **_OPTIONS,
)
Index(None, change.c.task_id, change.c.id)
Index(None, change.c.at)

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

# Retries that wait for their time, and those that were released within the last days: a second copy of
# a release must be known when it comes. Such a row keeps no message.
parked = Table(
    "celery_dlq_parked",
    metadata,
    Column("id", BIG_ID, primary_key=True, autoincrement=True),
    Column("parking", name(64), nullable=False),
    # The beginning of the parking: which broker gets the message.
    Column("place", name(16), nullable=False),
    Column("task_id", name(), nullable=False),
    Column("task", name(), nullable=False),
    Column("state", name(16), nullable=False),
    Column("reason", name(16), nullable=False),
    Column("exception_type", name(), nullable=False),
    Column("message", LONG_TEXT, nullable=False),
    Column("fingerprint", name(64), nullable=False),
    Column("args", LONG_TEXT, nullable=False),
    Column("kwargs", LONG_TEXT, nullable=False),
    Column("last_failed_at", Moment, nullable=False),
    Column("worker", name(), nullable=False),
    Column("queue", name(), nullable=False),
    # When the retry is due, by the database's clock; and when it may be taken (again) for that.
    Column("due_at", Moment, nullable=False),
    Column("next_at", Moment, nullable=False),
    # Copies that were, or may have been, published; and the one that a worker has run.
    Column("copies", Integer, nullable=False),
    Column("accepted", Integer),
    # The rest of the letter as JSON, and the body of its message.
    Column("record", BYTES, nullable=False),
    Column("body", BYTES, nullable=False),
    UniqueConstraint("parking"),
    **_OPTIONS,
)
Index(None, parked.c.state, parked.c.place, parked.c.next_at, parked.c.id)
Index(None, parked.c.task_id)

# Who does what only one worker at a time is to do. The token goes up with every new holder.
lease = Table(
    "celery_dlq_lease",
    metadata,
    Column("name", name(64), primary_key=True),
    Column("holder", name(), nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("expires_at", Moment, nullable=False),
    **_OPTIONS,
)

# Whether the messages of a task, or of one key of it, may run.
breaker = Table(
    "celery_dlq_breaker",
    metadata,
    Column("task", name(), nullable=False),
    Column("key", name(), nullable=False),
    Column("state", name(16), nullable=False),
    Column("recent", LONG_TEXT, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("opened_at", Moment),
    Column("probes", Integer, nullable=False),
    Column("probe_at", Moment),
    Column("probe", name(64), nullable=False),
    Column("probe_until", Moment),
    Column("changed_at", Moment, nullable=False),
    PrimaryKeyConstraint("task", "key"),
    **_OPTIONS,
)
Index(None, breaker.c.state, breaker.c.opened_at)
Index(None, breaker.c.changed_at)

version = Table(VERSION_TABLE, MetaData(), Column("version_num", String(32), primary_key=True))
