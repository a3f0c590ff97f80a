"""The tables: letters, their contents and values, parked retries, attempts, redrives, rollups, audit,
deliveries, leases, circuits, automations, handlings, tickets, segments of the archive, and reports.
This module has no behaviour."""

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
    false,
)
from sqlalchemy.schema import SchemaItem

from celery_dlq.store.database.columns import BIG_ID, BYTES, LONG_TEXT, Moment, name
from celery_dlq.store.database.dialects import SUPPORTED

#: Alembic's version table. It has a name of its own, so that the table of a host application is never
#: touched.
VERSION_TABLE = "celery_dlq_version"

#: Characters of an attempt's evidence and path, as many as a decision has.
EVIDENCE_WIDTH = 500

#: Characters of a route's name.
ROUTE_WIDTH = 64

metadata: MetaData = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)

_OPTIONS: dict[str, Any] = {
    name: value for dialect in SUPPORTED for name, value in dialect.table_options.items()
}


def _table(named: str, *items: SchemaItem) -> Table:
    return Table(named, metadata, *items, **_OPTIONS)


letter: Table = _table(
    "celery_dead_letter",
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
    # That in which it became a letter, or was edited last: the message is as it was then.
    Column("message_release", name(), nullable=False, server_default=""),
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
    # The token of the last claim, until the letter changes in another way. The letter is claimed as long as
    # that claim exists.
    Column("claim_token", name(64)),
    Column("lease_expires_at", Moment),
    Column("closed_at", Moment),
    Column("closed_by", name(), nullable=False),
    Column("closed_reason", LONG_TEXT, nullable=False),
    # The name of the route of the last failure; empty if it has none.
    Column("route", name(ROUTE_WIDTH), nullable=False, server_default=""),
    # The fingerprint that a recipe made, if the letter is counted in a group with another one.
    Column("raw_fingerprint", name(64), nullable=False, server_default=""),
    UniqueConstraint("task_id"),
)

# Lists and claims ask for one state at a time in the order of the last failure, in both directions. The index
# also has the reason, so that counting by reason reads only the index.
Index(None, letter.c.state, letter.c.last_failed_at, letter.c.id, letter.c.reason)
for _column in (
    letter.c.task, letter.c.exception_type, letter.c.fingerprint, letter.c.queue, letter.c.route,
    letter.c.root_id,
):  # fmt: skip
    Index(None, _column, letter.c.state, letter.c.last_failed_at, letter.c.id)

# The large values of each letter. A database writes a whole row again, or its pages, when one value in it
# changes, and the values that change are small. The columns that a redrive reads come first.
content: Table = _table(
    "celery_dead_letter_content",
    # The id of the letter.
    Column("id", BIG_ID, primary_key=True, autoincrement=False),
    Column("headers", LONG_TEXT, nullable=False),
    Column("properties", LONG_TEXT, nullable=False),
    Column("body", BYTES, nullable=False),
    Column("args", LONG_TEXT, nullable=False),
    Column("kwargs", LONG_TEXT, nullable=False),
    Column("traceback", LONG_TEXT, nullable=False),
    Column("log", LONG_TEXT, nullable=False),
    # The facts by which the letter is grouped, as JSON.
    Column("grounds", LONG_TEXT),
)

# Hashes of the values by which people look for a letter: see celery_dlq/model/terms.py.
term: Table = _table(
    "celery_dead_letter_term",
    # The id of the letter.
    Column("letter", BigInteger, nullable=False),
    Column("value", BigInteger, nullable=False),
    Column("path", Integer, nullable=False),
    PrimaryKeyConstraint("letter", "value", "path"),
)
Index(None, term.c.value, term.c.path, term.c.letter)

attempt: Table = _table(
    "celery_dead_letter_attempt",
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
)

# A fingerprint is a hash over task and exception type, so there is one row per fingerprint. Both are in the
# key so that counts by task stay right, however the fingerprint was made.
group: Table = _table(
    "celery_dead_letter_group",
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
    # The decisions that people made about it: see celery_dlq/model/group.py.
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
    # That of its newest failure.
    Column("route", name(ROUTE_WIDTH), nullable=False, server_default=""),
    # The place in the code where its letters failed; empty if it was made by a recipe of the user.
    Column("place", name(64), nullable=False, server_default=""),
    # Why its letters have to be looked at, because some may belong to another group: the recipe that has to
    # be applied, or another mark; empty if they need not be. And the number of the last one that was.
    Column("regroup", name(), nullable=False, server_default=""),
    Column("regrouped_to", BigInteger, nullable=False, server_default="0"),
    PrimaryKeyConstraint("fingerprint", "task", "exception_type"),
)
Index(None, group.c.place)
Index(None, group.c.regroup)

# The groups of fingerprints that are not groups of their own: they were merged by a person, folded because
# their place made too many, or made by another recipe than the group.
alias: Table = _table(
    "celery_dlq_alias",
    # A fingerprint, or "@" and a place.
    Column("name", name(64), primary_key=True),
    # Empty if the place may not be folded.
    Column("fingerprint", name(64), nullable=False),
    Column("why", name(), nullable=False),
    Column("who", name(), nullable=False),
    Column("at", Moment, nullable=False),
)
Index(None, alias.c.fingerprint)

# Arrivals by group, for trends and rates; and the open letters whose last failure was in that hour, for their
# ages. By the hour, because a group's row for one minute would usually count one letter.
trend: Table = _table(
    "celery_dead_letter_trend",
    Column("fingerprint", name(64), nullable=False),
    Column("hour", Moment, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("open_count", BigInteger, nullable=False),
    PrimaryKeyConstraint("fingerprint", "hour"),
)
Index(None, trend.c.hour)

arrival: Table = _table(
    "celery_dead_letter_arrival",
    Column("minute", Moment, nullable=False),
    Column("task", name(), nullable=False),
    Column("exception_type", name(), nullable=False),
    Column("count", BigInteger, nullable=False),
    PrimaryKeyConstraint("minute", "task", "exception_type"),
)

# The names are too long for a key in MySQL, so the key is a hash of them.
count: Table = _table(
    "celery_dead_letter_count",
    Column("id", name(64), primary_key=True),
    Column("task", name(), nullable=False),
    Column("queue", name(), nullable=False),
    Column("reason", name(16), nullable=False),
    Column("exception_type", name(), nullable=False),
    Column("open_count", BigInteger, nullable=False),
    # These never fall, whichever state the letters reach.
    Column("arrived_count", BigInteger, nullable=False),
    Column("succeeded_count", BigInteger, nullable=False),
    Column("failed_count", BigInteger, nullable=False),
    Column("first_seen_at", Moment, nullable=False),
    Column("route", name(ROUTE_WIDTH), nullable=False, server_default=""),
)

audit: Table = _table(
    "celery_dlq_audit",
    Column("id", BIG_ID, primary_key=True, autoincrement=True),
    Column("at", Moment, nullable=False),
    Column("who", name(), nullable=False),
    # The machine from which it was done.
    Column("host", name(), nullable=False, server_default=""),
    Column("act", name(64), nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("why", LONG_TEXT, nullable=False),
    Column("detail", LONG_TEXT, nullable=False),
    # The letter, the operation or the group that it was about, if it was about one.
    Column("subject", name(), nullable=False, server_default=""),
)
Index(None, audit.c.subject, audit.c.id)
Index(None, audit.c.at)

operation: Table = _table(
    "celery_dlq_operation",
    Column("id", name(32), primary_key=True),
    Column("state", name(16), nullable=False),
    Column("cause", LONG_TEXT, nullable=False),
    # The filter and the orders, as JSON.
    Column("wanted", LONG_TEXT, nullable=False),
    Column("orders", LONG_TEXT, nullable=False),
    Column("planned", BigInteger, nullable=False),
    Column("who", name(), nullable=False),
    Column("host", name(), nullable=False),
    # The app, and the address of the broker without its password; empty if unknown.
    Column("app", name(), nullable=False, server_default=""),
    Column("broker", name(), nullable=False, server_default=""),
    Column("detached", Boolean, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("started_at", Moment),
    Column("ended_at", Moment),
    # How many messages were sent again because they had vanished.
    Column("sent_again", BigInteger, nullable=False, server_default="0"),
)
Index(None, operation.c.created_at)
Index(None, operation.c.ended_at)
Index(None, operation.c.state, operation.c.created_at)

# One letter in one operation. Two operations have the same redrive of a letter if the first was killed before
# it marked the letter as sent.
sending: Table = _table(
    "celery_dead_letter_redrive",
    Column("operation", name(32), nullable=False),
    Column("task_id", name(), nullable=False),
    Column("task", name(), nullable=False),
    Column("redrive", Integer, nullable=False),
    Column("state", name(16), nullable=False),
    # The letter's state before it was claimed.
    Column("was", name(16), nullable=False),
    # The failure that it was redriven after; None and empty in rows that an archive of an unreleased state
    # may bring back.
    Column("failed_at", Moment),
    Column("cause", name(64), nullable=False, server_default=""),
    # The token of the last claim, how often it was claimed, and the copy that a worker has run.
    Column("copy", name(64), nullable=False),
    Column("copies", Integer, nullable=False),
    Column("accepted", name(64)),
    Column("why", LONG_TEXT, nullable=False),
    Column("fingerprint", name(64), nullable=False),
    Column("change", LONG_TEXT, nullable=False),
    Column("claimed_at", Moment, nullable=False),
    # None if it was sent with its whole claim, which then no longer exists.
    Column("sent_at", Moment),
    Column("ended_at", Moment),
    # How often the message was sent again because it had vanished, and when it was last.
    Column("sent_again", Integer, nullable=False, server_default="0"),
    Column("sent_again_at", Moment),
    PrimaryKeyConstraint("operation", "task_id"),
)
Index(None, sending.c.task_id, sending.c.redrive)
# For the counts and the last endings. Neither has a row of its own, because all workers would wait for that
# row. The state is first because PostgreSQL, before its first ANALYZE, would find single letters by the
# operation.
Index(None, sending.c.state, sending.c.operation, sending.c.ended_at)

# The claims that exist, with one row for all letters of a claim. The letters are written as if they were
# sent.
claim: Table = _table(
    "celery_dlq_claim",
    Column("token", name(64), primary_key=True),
    Column("operation", name(32), nullable=False),
    # Letters that were neither sent nor given back.
    Column("letters", Integer, nullable=False),
    Column("lease_expires_at", Moment, nullable=False),
)

# The changes that people made in letters' messages; each row keeps the message as it was.
change: Table = _table(
    "celery_dead_letter_change",
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
)
Index(None, change.c.task_id, change.c.id)
Index(None, change.c.at)

# Runs of redelivered messages that have not ended; the end of a run deletes its rows.
delivery: Table = _table(
    "celery_dlq_delivery",
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
    # Whether the message has come to an end. Such rows stay for a while, because a recovery of an earlier
    # delivery asks for them.
    Column("ended", Boolean, nullable=False, server_default=false(), default=False),
    PrimaryKeyConstraint("task_id", "redrive", "attempt", "started_at"),
)
Index(None, delivery.c.started_at)

# Retries that wait for their time, and those that were released within the last days, so that a second copy
# of a release is recognised. The row of a released retry keeps no message.
parked: Table = _table(
    "celery_dlq_parked",
    Column("id", BIG_ID, primary_key=True, autoincrement=True),
    Column("parking", name(64), nullable=False),
    # The beginning of the parking, which says which broker gets the message.
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
    # When the retry is due, by the database's clock; and when it may be taken, or taken again, to be sent.
    Column("due_at", Moment, nullable=False),
    Column("next_at", Moment, nullable=False),
    # Copies that were, or may have been, published; and the one that a worker has run.
    Column("copies", Integer, nullable=False),
    Column("accepted", Integer),
    # The rest of the letter as JSON, and the body of its message.
    Column("record", BYTES, nullable=False),
    Column("body", BYTES, nullable=False),
    Column("route", name(ROUTE_WIDTH), nullable=False, server_default=""),
    # Copied from the record, so that filters can ask for them.
    Column("release", name()),
    Column("root_id", name()),
    Column("tags", LONG_TEXT),
    Column("verdict", name(16)),
    Column("rule", name()),
    UniqueConstraint("parking"),
)
Index(None, parked.c.state, parked.c.place, parked.c.next_at, parked.c.id)
Index(None, parked.c.task_id)

# The holder of each lease, for work that only one worker at a time may do. The token rises with every new
# holder.
lease: Table = _table(
    "celery_dlq_lease",
    Column("name", name(64), primary_key=True),
    Column("holder", name(), nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("expires_at", Moment, nullable=False),
)

# Whether the messages of a task, or of one key of it, may run.
breaker: Table = _table(
    "celery_dlq_breaker",
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
)
Index(None, breaker.c.state, breaker.c.opened_at)
Index(None, breaker.c.changed_at)

# The state of each automation, and when it last looked. The row is locked while letters are chosen for it.
automation: Table = _table(
    "celery_dlq_automation",
    Column("name", name(64), primary_key=True),
    Column("state", name(16), nullable=False),
    Column("at", Moment),
    Column("who", name(), nullable=False),
    Column("why", LONG_TEXT, nullable=False),
    Column("looked_at", Moment),
)

# Letters that no automatic redrive touches again.
held: Table = _table(
    "celery_dlq_held",
    Column("task_id", name(), primary_key=True),
    Column("name", name(64), nullable=False),
    Column("why", LONG_TEXT, nullable=False),
    Column("at", Moment, nullable=False),
)

# What an automation did about one failure of a letter. An automatic redrive calls no function, so tries is 0;
# its version is the id of the run, which is that of the operation.
handling: Table = _table(
    "celery_dlq_handling",
    Column("id", BIG_ID, primary_key=True, autoincrement=True),
    Column("task_id", name(), nullable=False),
    Column("name", name(64), nullable=False),
    Column("version", name(64), nullable=False),
    Column("failed_at", Moment, nullable=False),
    Column("fingerprint", name(64), nullable=False),
    Column("state", name(16), nullable=False),
    Column("verdict", name(16), nullable=False),
    Column("detail", LONG_TEXT, nullable=False),
    Column("error", LONG_TEXT, nullable=False),
    # How often its message was sent since it was queued, and how often the handler was called.
    Column("sends", Integer, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("queued_at", Moment, nullable=False),
    # When the dispatcher does the next thing about it: sends its message (again), gives up on its worker, or
    # makes its operation. None if there is nothing to do.
    Column("due_at", Moment),
    Column("started_at", Moment),
    Column("ended_at", Moment),
    Column("worker", name(), nullable=False),
    Column("operation", name(32), nullable=False),
    UniqueConstraint("task_id", "name", "version", "failed_at"),
)
Index(None, handling.c.state, handling.c.due_at)
Index(None, handling.c.name, handling.c.queued_at)
Index(None, handling.c.fingerprint, handling.c.name)
Index(None, handling.c.ended_at)

# The ticket of a group, and the person or team that it was escalated to.
ticket: Table = _table(
    "celery_dlq_ticket",
    Column("fingerprint", name(64), nullable=False),
    Column("kind", name(16), nullable=False),
    Column("url", LONG_TEXT, nullable=False),
    Column("recipient", name(), nullable=False),
    Column("why", LONG_TEXT, nullable=False),
    Column("handler", name(100), nullable=False),
    Column("at", Moment, nullable=False),
    PrimaryKeyConstraint("fingerprint", "kind"),
)

# The segments of the archive. Unless a segment is a leftover, its letters are in its file, and not here.
segment: Table = _table(
    "celery_dlq_segment",
    Column("id", name(32), primary_key=True),
    Column("state", name(16), nullable=False),
    Column("letters", Integer, nullable=False),
    Column("size", BigInteger, nullable=False),
    # Of the file.
    Column("sha256", name(64), nullable=False),
    Column("first_failed_at", Moment, nullable=False),
    Column("last_failed_at", Moment, nullable=False),
    Column("archived_at", Moment, nullable=False),
)

# The last report of each work that is done again and again, and of trouble with the flight recorder, as JSON.
report: Table = _table(
    "celery_dlq_report",
    Column("name", name(64), primary_key=True),
    Column("at", Moment, nullable=False),
    Column("detail", LONG_TEXT, nullable=False),
)

version: Table = Table(
    VERSION_TABLE, MetaData(), Column("version_num", String(32), primary_key=True)
)
