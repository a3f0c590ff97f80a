"""The tables: letters, their contents and values, parked retries, attempts, redrives, rollups, audit,
deliveries, leases, circuits, automations, handlings, tickets, requests, segments of the archive, keys, and
reports.
This module has no behaviour."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import SchemaItem

from celery_dlq.store.database.columns import BIG_ID, BYTES, LONG_TEXT, Moment, name
from celery_dlq.store.database.dialects import SUPPORTED
from celery_dlq.store.database.namespaces import column as _namespace

#: Alembic's version table. It has a name of its own, so that the table of a host application is never
#: touched.
VERSION_TABLE = "celery_dlq_version"

#: Characters of an attempt's evidence and path, as many as a decision has.
EVIDENCE_WIDTH = 500

#: Characters of a route's name.
ROUTE_WIDTH = 64

metadata: sa.MetaData = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)

_OPTIONS: dict[str, Any] = {
    name: value for dialect in SUPPORTED for name, value in dialect.table_options.items()
}


def _table(named: str, *items: SchemaItem) -> sa.Table:
    return sa.Table(named, metadata, *items, **_OPTIONS)


def _each(kind: Any, *names: str, nullable: bool = False, **options: Any) -> list[sa.Column[Any]]:
    """Columns that have one type, and the same options."""
    return [sa.Column(one, kind, nullable=nullable, **options) for one in names]


def _index(*columns: sa.Column[Any]) -> None:
    """An index of the rows of each namespace, with the name of its next column."""
    table = columns[0].table
    sa.Index(f"ix_{table.name}_{columns[0].name}", table.c.namespace, *columns)


letter: sa.Table = _table(
    "celery_dead_letter",
    sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
    *_each(name(), "task_id", "task", "rule", "exception_type", "worker", "release", "closed_by"),
    *_each(name(16), "state", "reason", "verdict", "canvas"),
    *_each(LONG_TEXT, "evidence", "path", "message", "tags", "closed_reason"),
    sa.Column("fingerprint", name(64), nullable=False),
    *_each(Moment, "first_failed_at", "last_failed_at"),
    # The redrive that the last failure belongs to; redrive_count also counts the one under way.
    *_each(sa.Integer, "last_redrive", "redrive_count", "attempt_count"),
    sa.Column("pid", sa.BigInteger),
    # That in which it became a letter, or was edited last: the message is as it was then.
    sa.Column("message_release", name(), nullable=False, server_default=""),
    *_each(name(), "root_id", "parent_id", "group_id", "correlation_id", nullable=True),
    *_each(name(), "content_type", "content_encoding", "exchange", "routing_key", "queue"),
    # The token of the last claim, until the letter changes in another way. The letter is claimed as long as
    # that claim exists.
    sa.Column("claim_token", name(64)),
    *_each(Moment, "lease_expires_at", "closed_at", nullable=True),
    # The name of the route of the last failure; empty if it has none.
    sa.Column("route", name(ROUTE_WIDTH), nullable=False, server_default=""),
    # The fingerprint that a recipe made, if the letter is counted in a group with another one.
    sa.Column("raw_fingerprint", name(64), nullable=False, server_default=""),
    # The label of the key that its contents are sealed with, or "@" and the id of a person, who has a key;
    # empty if they are not sealed.
    sa.Column("sealed_by", name(64), nullable=False, server_default=""),
    _namespace(),
    sa.UniqueConstraint("task_id"),
)

# Lists and claims ask for one state at a time in the order of the last failure, in both directions. The index
# also has the reason, so that counting by reason reads only the index.
_in_order = letter.c.last_failed_at, letter.c.id
_index(letter.c.state, *_in_order, letter.c.reason)
for _column in (letter.c.task, letter.c.exception_type, letter.c.queue, letter.c.route):
    _index(_column, letter.c.state, *_in_order)
# The letters of a group, and of a canvas, are of one namespace.
for _column in (letter.c.fingerprint, letter.c.root_id):
    sa.Index(None, _column, letter.c.state, *_in_order)

# For the number of letters of each key, for a rotation, and for the letters of a person.
sa.Index(None, letter.c.sealed_by, letter.c.id)

# The large values of each letter. A database writes a whole row again, or its pages, when one value in it
# changes, and the values that change are small. The columns that a redrive reads come first.
content: sa.Table = _table(
    "celery_dead_letter_content",
    # The id of the letter.
    sa.Column("id", BIG_ID, primary_key=True, autoincrement=False),
    *_each(LONG_TEXT, "headers", "properties"),
    sa.Column("body", BYTES, nullable=False),
    *_each(LONG_TEXT, "args", "kwargs", "traceback", "log"),
    # The facts by which the letter is grouped, as JSON.
    sa.Column("grounds", LONG_TEXT),
)

# Hashes of the values by which people look for a letter: see celery_dlq/model/terms.py.
term: sa.Table = _table(
    "celery_dead_letter_term",
    # The id of the letter.
    *_each(sa.BigInteger, "letter", "value"),
    sa.Column("path", sa.Integer, nullable=False),
    sa.PrimaryKeyConstraint("letter", "value", "path"),
)
sa.Index(None, term.c.value, term.c.path, term.c.letter)

attempt: sa.Table = _table(
    "celery_dead_letter_attempt",
    *_each(name(), "task_id", "exception_type", "rule", "worker"),
    *_each(sa.Integer, "redrive", "number"),
    sa.Column("failed_at", Moment, nullable=False),
    sa.Column("message", LONG_TEXT, nullable=False),
    sa.Column("verdict", name(16), nullable=False),
    *_each(name(EVIDENCE_WIDTH), "evidence", "path", server_default=""),
    sa.Column("delay_s", sa.Double),
    sa.Column("pid", sa.BigInteger),
    sa.PrimaryKeyConstraint("task_id", "redrive", "number", "failed_at"),
)

# A fingerprint is a hash over task and exception type, so there is one row per fingerprint. Both are in the
# key so that counts by task stay right, however the fingerprint was made.
group: sa.Table = _table(
    "celery_dead_letter_group",
    sa.Column("fingerprint", name(64), nullable=False),
    *_each(name(), "task", "exception_type"),
    sa.Column("message", LONG_TEXT, nullable=False),
    *_each(sa.BigInteger, "open_count", "resolved_count", "discarded_count", "total_count"),
    *_each(Moment, "first_seen_at", "last_seen_at"),
    # The decisions that people made about it: see celery_dlq/model/group.py.
    sa.Column("status", name(16), nullable=False, server_default="open"),
    *_each(Moment, "status_at", "ignored_until", "regressed_at", nullable=True),
    *_each(name(), "status_by", "resolved_in", "owner", server_default=""),
    *_each(sa.BigInteger, "ignored_rate", "ignored_total", nullable=True),
    # The releases that had failed before it was resolved in another one, as JSON.
    sa.Column("failed_in", LONG_TEXT),
    sa.Column("note", LONG_TEXT),
    # That of its newest failure.
    sa.Column("route", name(ROUTE_WIDTH), nullable=False, server_default=""),
    # The place in the code where its letters failed; empty if it was made by a recipe of the user.
    sa.Column("place", name(64), nullable=False, server_default=""),
    # Why its letters have to be looked at, because some may belong to another group: the recipe that has to
    # be applied, or another mark; empty if they need not be. And the number of the last one that was.
    sa.Column("regroup", name(), nullable=False, server_default=""),
    sa.Column("regrouped_to", sa.BigInteger, nullable=False, server_default="0"),
    _namespace(),
    sa.PrimaryKeyConstraint("fingerprint", "task", "exception_type"),
)
sa.Index(None, group.c.place)
sa.Index(None, group.c.regroup)

# The groups of fingerprints that are not groups of their own: they were merged by a person, folded because
# their place made too many, or made by another recipe than the group.
alias: sa.Table = _table(
    "celery_dlq_alias",
    # A fingerprint, or "@" and a place.
    sa.Column("name", name(64), primary_key=True),
    # Empty if the place may not be folded.
    sa.Column("fingerprint", name(64), nullable=False),
    *_each(name(), "why", "who"),
    sa.Column("at", Moment, nullable=False),
    _namespace(),
)
sa.Index(None, alias.c.fingerprint)

# Arrivals by group, for trends and rates; and the open letters whose last failure was in that hour, for their
# ages. By the hour, because a group's row for one minute would usually count one letter.
trend: sa.Table = _table(
    "celery_dead_letter_trend",
    sa.Column("fingerprint", name(64), nullable=False),
    sa.Column("hour", Moment, nullable=False),
    *_each(sa.BigInteger, "count", "open_count"),
    _namespace(),
    sa.PrimaryKeyConstraint("fingerprint", "hour"),
)
_index(trend.c.hour)

arrival: sa.Table = _table(
    "celery_dead_letter_arrival",
    sa.Column("minute", Moment, nullable=False),
    *_each(name(), "task", "exception_type"),
    sa.Column("count", sa.BigInteger, nullable=False),
    _namespace(),
    sa.PrimaryKeyConstraint("namespace", "minute", "task", "exception_type"),
)

# The names are too long for a key in MySQL, so the key is a hash of them.
cell: sa.Table = _table(
    "celery_dead_letter_count",
    sa.Column("id", name(64), primary_key=True),
    *_each(name(), "task", "queue", "exception_type"),
    sa.Column("reason", name(16), nullable=False),
    sa.Column("open_count", sa.BigInteger, nullable=False),
    # These never fall, whichever state the letters reach.
    *_each(sa.BigInteger, "arrived_count", "succeeded_count", "failed_count"),
    sa.Column("first_seen_at", Moment, nullable=False),
    sa.Column("route", name(ROUTE_WIDTH), nullable=False, server_default=""),
    _namespace(),
)

audit: sa.Table = _table(
    "celery_dlq_audit",
    sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
    sa.Column("at", Moment, nullable=False),
    sa.Column("who", name(), nullable=False),
    # The machine from which it was done.
    sa.Column("host", name(), nullable=False, server_default=""),
    sa.Column("act", name(64), nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    *_each(LONG_TEXT, "why", "detail"),
    # The letter, the operation or the group that it was about, if it was about one.
    sa.Column("subject", name(), nullable=False, server_default=""),
    # Makes the digest of the row in its link, together with the other columns.
    sa.Column("salt", name(32), nullable=False, server_default=""),
    _namespace(),
)
sa.Index(None, audit.c.subject, audit.c.id)
_index(audit.c.at)
_index(audit.c.id)

# The chain of the audit: see celery_dlq/store/database/chain.py. The row with the number 0 is the head.
audit_link: sa.Table = _table(
    "celery_dlq_audit_link",
    sa.Column("n", BIG_ID, primary_key=True, autoincrement=False),
    sa.Column("act", sa.BigInteger, nullable=False),
    # The digest is that of the act; empty if the act was deleted. In the head, it is the hash of the newest
    # link.
    *_each(name(64), "digest", "hash"),
)
sa.Index(None, audit_link.c.act, audit_link.c.n)

operation: sa.Table = _table(
    "celery_dlq_operation",
    sa.Column("id", name(32), primary_key=True),
    sa.Column("state", name(16), nullable=False),
    sa.Column("cause", LONG_TEXT, nullable=False),
    # The filter and the orders, as JSON.
    *_each(LONG_TEXT, "wanted", "orders"),
    sa.Column("planned", sa.BigInteger, nullable=False),
    *_each(name(), "who", "host"),
    # The app, and the address of the broker without its password; empty if unknown.
    *_each(name(), "app", "broker", server_default=""),
    sa.Column("detached", sa.Boolean, nullable=False),
    sa.Column("created_at", Moment, nullable=False),
    *_each(Moment, "started_at", "ended_at", nullable=True),
    # How many messages were sent again because they had vanished.
    sa.Column("sent_again", sa.BigInteger, nullable=False, server_default="0"),
    _namespace(),
)
_index(operation.c.created_at)
_index(operation.c.ended_at)
_index(operation.c.state, operation.c.created_at)

# One letter in one operation. Two operations have the same redrive of a letter if the first was killed before
# it marked the letter as sent.
sending: sa.Table = _table(
    "celery_dead_letter_redrive",
    sa.Column("operation", name(32), nullable=False),
    *_each(name(), "task_id", "task"),
    *_each(sa.Integer, "redrive", "copies"),
    sa.Column("state", name(16), nullable=False),
    # The letter's state before it was claimed.
    sa.Column("was", name(16), nullable=False),
    # The failure that it was redriven after; None and empty in rows that an archive of an unreleased state
    # may bring back.
    sa.Column("failed_at", Moment),
    sa.Column("cause", name(64), nullable=False, server_default=""),
    # The token of the last claim, how often it was claimed, and the copy that a worker has run.
    sa.Column("copy", name(64), nullable=False),
    sa.Column("accepted", name(64)),
    *_each(LONG_TEXT, "why", "change"),
    sa.Column("fingerprint", name(64), nullable=False),
    sa.Column("claimed_at", Moment, nullable=False),
    # None if it was sent with its whole claim, which then no longer exists.
    *_each(Moment, "sent_at", "ended_at", nullable=True),
    # How often the message was sent again because it had vanished, and when it was last.
    sa.Column("sent_again", sa.Integer, nullable=False, server_default="0"),
    sa.Column("sent_again_at", Moment),
    _namespace(),
    sa.PrimaryKeyConstraint("operation", "task_id"),
)
sa.Index(None, sending.c.task_id, sending.c.redrive)
# For the counts and the last endings. Neither has a row of its own, because all workers would wait for that
# row. The state is first because PostgreSQL, before its first ANALYZE, would find single letters by the
# operation.
sa.Index(None, sending.c.state, sending.c.operation, sending.c.ended_at)

# The claims that exist, with one row for all letters of a claim. The letters are written as if they were
# sent.
claim: sa.Table = _table(
    "celery_dlq_claim",
    sa.Column("token", name(64), primary_key=True),
    sa.Column("operation", name(32), nullable=False),
    # Letters that were neither sent nor given back.
    sa.Column("letters", sa.Integer, nullable=False),
    sa.Column("lease_expires_at", Moment, nullable=False),
    _namespace(),
)

# The changes that people made in letters' messages; each row keeps the message as it was.
change: sa.Table = _table(
    "celery_dead_letter_change",
    sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
    *_each(name(), "task_id", "who", "content_type", "content_encoding"),
    sa.Column("at", Moment, nullable=False),
    sa.Column("how", name(64), nullable=False),
    *_each(LONG_TEXT, "diff", "headers", "properties"),
    sa.Column("body", BYTES, nullable=False),
    *_each(name(), "exchange", "routing_key", "queue"),
    _namespace(),
)
sa.Index(None, change.c.task_id, change.c.id)
sa.Index(None, change.c.at)

# Runs of redelivered messages that have not ended; the end of a run deletes its rows.
delivery: sa.Table = _table(
    "celery_dlq_delivery",
    *_each(name(), "task_id", "task", "worker", "process"),
    *_each(sa.Integer, "redrive", "attempt", "number"),
    sa.Column("started_at", Moment, nullable=False),
    sa.Column("alone", sa.Boolean, nullable=False),
    sa.Column("death", LONG_TEXT, nullable=False),
    # Whether the message has come to an end. Such rows stay for a while, because a recovery of an earlier
    # delivery asks for them.
    sa.Column("ended", sa.Boolean, nullable=False, server_default=sa.false(), default=False),
    _namespace(),
    sa.PrimaryKeyConstraint("task_id", "redrive", "attempt", "started_at"),
)
sa.Index(None, delivery.c.started_at)

# Retries that wait for their time, and those that were released within the last days, so that a second copy
# of a release is recognised. The row of a released retry keeps no message.
parked: sa.Table = _table(
    "celery_dlq_parked",
    sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
    *_each(name(64), "parking", "fingerprint"),
    # The beginning of the parking, which says which broker gets the message.
    sa.Column("place", name(16), nullable=False),
    *_each(name(), "task_id", "task", "exception_type", "worker", "queue"),
    *_each(name(16), "state", "reason"),
    *_each(LONG_TEXT, "message", "args", "kwargs"),
    sa.Column("last_failed_at", Moment, nullable=False),
    # When the retry is due, by the database's clock; and when it may be taken, or taken again, to be sent.
    *_each(Moment, "due_at", "next_at"),
    # Copies that were, or may have been, published; and the one that a worker has run.
    sa.Column("copies", sa.Integer, nullable=False),
    sa.Column("accepted", sa.Integer),
    # The rest of the letter as JSON, and the body of its message.
    *_each(BYTES, "record", "body"),
    sa.Column("route", name(ROUTE_WIDTH), nullable=False, server_default=""),
    # Copied from the record, so that filters can ask for them.
    *_each(name(), "release", "root_id", nullable=True),
    sa.Column("tags", LONG_TEXT),
    sa.Column("verdict", name(16)),
    sa.Column("rule", name()),
    _namespace(),
    sa.UniqueConstraint("parking"),
)
_index(parked.c.state, parked.c.place, parked.c.next_at, parked.c.id)
sa.Index(None, parked.c.task_id)

# The holder of each lease, for work that only one worker at a time may do. The token rises with every new
# holder.
lease: sa.Table = _table(
    "celery_dlq_lease",
    # With the namespace before it, unless it is the lease of an operation.
    sa.Column("name", name(160), primary_key=True),
    sa.Column("holder", name(), nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("expires_at", Moment, nullable=False),
)

# Whether the messages of a task, or of one key of it, may run.
breaker: sa.Table = _table(
    "celery_dlq_breaker",
    *_each(name(), "task", "key"),
    sa.Column("state", name(16), nullable=False),
    sa.Column("recent", LONG_TEXT, nullable=False),
    *_each(sa.Integer, "failures", "probes"),
    *_each(Moment, "opened_at", "probe_at", "probe_until", nullable=True),
    sa.Column("probe", name(64), nullable=False),
    sa.Column("changed_at", Moment, nullable=False),
    _namespace(),
    sa.PrimaryKeyConstraint("namespace", "task", "key"),
)
_index(breaker.c.state, breaker.c.opened_at)
_index(breaker.c.changed_at)

# The state of each automation, and when it last looked. The row is locked while letters are chosen for it.
automation: sa.Table = _table(
    "celery_dlq_automation",
    _namespace(),
    sa.Column("name", name(64), nullable=False),
    sa.Column("state", name(16), nullable=False),
    *_each(Moment, "at", "looked_at", nullable=True),
    sa.Column("who", name(), nullable=False),
    sa.Column("why", LONG_TEXT, nullable=False),
    sa.PrimaryKeyConstraint("namespace", "name"),
)

# Letters that no automatic redrive touches again.
auto_hold: sa.Table = _table(
    "celery_dlq_held",
    sa.Column("task_id", name(), primary_key=True),
    sa.Column("name", name(64), nullable=False),
    sa.Column("why", LONG_TEXT, nullable=False),
    sa.Column("at", Moment, nullable=False),
    _namespace(),
)

# What an automation did about one failure of a letter. An automatic redrive calls no function, so tries is 0;
# its version is the id of the run, which is that of the operation.
handling: sa.Table = _table(
    "celery_dlq_handling",
    sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
    *_each(name(), "task_id", "worker"),
    *_each(name(64), "name", "version", "fingerprint"),
    *_each(Moment, "failed_at", "queued_at"),
    *_each(name(16), "state", "verdict"),
    *_each(LONG_TEXT, "detail", "error"),
    # How often its message was sent since it was queued, and how often the handler was called.
    *_each(sa.Integer, "sends", "tries"),
    # When the dispatcher does the next thing about it: sends its message (again), gives up on its worker, or
    # makes its operation. None if there is nothing to do.
    *_each(Moment, "due_at", "started_at", "ended_at", nullable=True),
    sa.Column("operation", name(32), nullable=False),
    _namespace(),
    sa.UniqueConstraint("task_id", "name", "version", "failed_at"),
)
sa.Index(None, handling.c.state, handling.c.due_at)
_index(handling.c.name, handling.c.queued_at)
sa.Index(None, handling.c.fingerprint, handling.c.name)
sa.Index(None, handling.c.ended_at)

# The ticket of a group, and the person or team that it was escalated to.
ticket: sa.Table = _table(
    "celery_dlq_ticket",
    sa.Column("fingerprint", name(64), nullable=False),
    sa.Column("kind", name(16), nullable=False),
    *_each(LONG_TEXT, "url", "why"),
    sa.Column("recipient", name(), nullable=False),
    sa.Column("handler", name(100), nullable=False),
    sa.Column("at", Moment, nullable=False),
    _namespace(),
    sa.PrimaryKeyConstraint("fingerprint", "kind"),
)

# Acts that wait for a second person, or that waited for one.
request: sa.Table = _table(
    "celery_dlq_request",
    sa.Column("id", name(32), primary_key=True),
    sa.Column("state", name(16), nullable=False),
    *_each(Moment, "at", "expires_at"),
    # All but the reason, as JSON; and the digest of both, by which a change in the database is noticed.
    *_each(LONG_TEXT, "why", "record"),
    sa.Column("digest", name(64), nullable=False),
    _namespace(),
)
sa.Index(None, request.c.state, request.c.expires_at)

# The segments of the archive. Unless a segment is a leftover, its letters are in its file, and not here.
segment: sa.Table = _table(
    "celery_dlq_segment",
    sa.Column("id", name(32), primary_key=True),
    sa.Column("state", name(16), nullable=False),
    sa.Column("letters", sa.Integer, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    # Of the file.
    sa.Column("sha256", name(64), nullable=False),
    *_each(Moment, "first_failed_at", "last_failed_at", "archived_at"),
    _namespace(),
)

# Keys that are sealed with the ring of dlq_encryption_keys: those of persons, by an id that is derived from
# the name, and the one with which values and names are hashed.
key: sa.Table = _table(
    "celery_dlq_key",
    sa.Column("id", name(32), primary_key=True),
    sa.Column("sealed", LONG_TEXT, nullable=False),
    # The label of the key of the ring.
    sa.Column("sealed_by", name(64), nullable=False),
)
sa.Index(None, key.c.sealed_by)

# The last report of each work that is done again and again, and of trouble with the flight recorder, as JSON.
report: sa.Table = _table(
    "celery_dlq_report",
    _namespace(),
    sa.Column("name", name(64), nullable=False),
    sa.Column("at", Moment, nullable=False),
    sa.Column("detail", LONG_TEXT, nullable=False),
    sa.PrimaryKeyConstraint("namespace", "name"),
)

version: sa.Table = sa.Table(
    VERSION_TABLE, sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True)
)
