"""The tables of the first release, with their indexes.

The column types come from the package: they are a vocabulary, and a word there never changes its meaning.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import BIG_ID, BYTES, LONG_TEXT, Moment, name

revision = "0025"
down_revision = None

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}

#: The columns by which letters are filtered most, each with an index in the order of the last failure.
_FILTERED = ("task", "exception_type", "fingerprint", "queue", "route", "root_id")

#: PostgreSQL cleans up and analyses these large tables after one row in a hundred has changed. Its default is
#: one in five, which is two million of ten million letters: until then, pages that an index could answer are
#: read from the table, and counts take ten times as long.
_LARGE = (
    "celery_dead_letter",
    "celery_dead_letter_content",
    "celery_dead_letter_attempt",
    "celery_dead_letter_term",
    "celery_dead_letter_redrive",
    "celery_dlq_delivery",
)
_AUTOVACUUM = ", ".join(
    f"autovacuum_{what}_scale_factor = 0.01" for what in ("vacuum", "vacuum_insert", "analyze")
)

_needed = partial(sa.Column, nullable=False)
_optional = partial(sa.Column, nullable=True)


def upgrade() -> None:
    _create_letters()
    _create_rollups()
    _create_redrives()
    _create_runs_and_waits()
    _create_automation()
    _create_records()
    if op.get_context().dialect.name == "postgresql":
        for table in _LARGE:
            op.execute(f"ALTER TABLE {table} SET ({_AUTOVACUUM})")


def _create(
    table: str,
    key: Sequence[str],
    *columns: sa.Column[Any],
    unique: Sequence[str] = (),
    indexes: Iterable[Sequence[str]] = (),
) -> None:
    """Create the table and its indexes if they are missing. MySQL commits each step at once, and an earlier
    upgrade may have been interrupted between them."""
    found = _found_indexes(table)
    if found is None:
        constraints: list[sa.Constraint] = [sa.PrimaryKeyConstraint(*key, name=f"pk_{table}")]
        if unique:
            constraints.append(sa.UniqueConstraint(*unique, name=f"uq_{table}_{unique[0]}"))
        op.create_table(table, *columns, *constraints, **_OPTIONS)
    for index in indexes:
        named = f"ix_{table}_{index[0]}"
        if named not in (found or ()):
            op.create_index(named, table, [*index])


def _found_indexes(table: str) -> set[str | None] | None:
    """The names of the table's indexes; None if it does not exist, as printed SQL assumes. Other databases
    undo an interrupted upgrade, so that a table which exists there is an error."""
    context = op.get_context()
    if context.as_sql or context.dialect.name != "mysql":
        return None
    found = sa.inspect(op.get_bind())
    return {item["name"] for item in found.get_indexes(table)} if found.has_table(table) else None


def _create_letters() -> None:
    _create(
        "celery_dead_letter", ["id"],
        _needed("id", BIG_ID, autoincrement=True),
        _needed("task_id", name()),
        _needed("task", name()),
        _needed("state", name(16)),
        _needed("reason", name(16)),
        _needed("verdict", name(16)),
        _needed("rule", name()),
        _needed("evidence", LONG_TEXT),
        _needed("path", LONG_TEXT),
        _needed("exception_type", name()),
        _needed("message", LONG_TEXT),
        _needed("fingerprint", name(64)),
        _needed("first_failed_at", Moment),
        _needed("last_failed_at", Moment),
        _needed("last_redrive", sa.Integer),
        _needed("redrive_count", sa.Integer),
        _needed("attempt_count", sa.Integer),
        _needed("worker", name()),
        _optional("pid", sa.BigInteger),
        _needed("release", name()),
        _optional("root_id", name()),
        _optional("parent_id", name()),
        _optional("group_id", name()),
        _optional("correlation_id", name()),
        _needed("canvas", name(16)),
        _needed("tags", LONG_TEXT),
        _needed("content_type", name()),
        _needed("content_encoding", name()),
        _needed("exchange", name()),
        _needed("routing_key", name()),
        _needed("queue", name()),
        _optional("claim_token", name(64)),
        _optional("lease_expires_at", Moment),
        _optional("closed_at", Moment),
        _needed("closed_by", name()),
        _needed("closed_reason", LONG_TEXT),
        _needed("route", name(64), server_default=""),
        _needed("raw_fingerprint", name(64), server_default=""),
        unique=["task_id"],
        indexes=[
            ["state", "last_failed_at", "id", "reason"],
            *([column, "state", "last_failed_at", "id"] for column in _FILTERED),
        ],
    )
    _create(
        "celery_dead_letter_content", ["id"],
        _needed("id", BIG_ID, autoincrement=False),
        _needed("headers", LONG_TEXT),
        _needed("properties", LONG_TEXT),
        _needed("body", BYTES),
        _needed("args", LONG_TEXT),
        _needed("kwargs", LONG_TEXT),
        _needed("traceback", LONG_TEXT),
        _optional("grounds", LONG_TEXT),
    )
    _create(
        "celery_dead_letter_term", ["letter", "value", "path"],
        _needed("letter", sa.BigInteger),
        _needed("value", sa.BigInteger),
        _needed("path", sa.Integer),
        indexes=[["value", "path", "letter"]],
    )
    _create(
        "celery_dead_letter_attempt", ["task_id", "redrive", "number", "failed_at"],
        _needed("task_id", name()),
        _needed("redrive", sa.Integer),
        _needed("number", sa.Integer),
        _needed("failed_at", Moment),
        _needed("exception_type", name()),
        _needed("message", LONG_TEXT),
        _needed("verdict", name(16)),
        _needed("rule", name()),
        _optional("delay_s", sa.Double),
        _needed("worker", name()),
        _optional("pid", sa.BigInteger),
        _needed("evidence", name(500), server_default=""),
        _needed("path", name(500), server_default=""),
    )
    _create(
        "celery_dead_letter_change", ["id"],
        _needed("id", BIG_ID, autoincrement=True),
        _needed("task_id", name()),
        _needed("at", Moment),
        _needed("who", name()),
        _needed("how", name(64)),
        _needed("diff", LONG_TEXT),
        _needed("body", BYTES),
        _needed("content_type", name()),
        _needed("content_encoding", name()),
        _needed("headers", LONG_TEXT),
        _needed("properties", LONG_TEXT),
        _needed("exchange", name()),
        _needed("routing_key", name()),
        _needed("queue", name()),
        indexes=[["task_id", "id"], ["at"]],
    )


def _create_rollups() -> None:
    _create(
        "celery_dead_letter_group", ["fingerprint", "task", "exception_type"],
        _needed("fingerprint", name(64)),
        _needed("task", name()),
        _needed("exception_type", name()),
        _needed("message", LONG_TEXT),
        _needed("open_count", sa.BigInteger),
        _needed("resolved_count", sa.BigInteger),
        _needed("discarded_count", sa.BigInteger),
        _needed("total_count", sa.BigInteger),
        _needed("first_seen_at", Moment),
        _needed("last_seen_at", Moment),
        _needed("status", name(16), server_default="open"),
        _optional("status_at", Moment),
        _needed("status_by", name(), server_default=""),
        _optional("ignored_until", Moment),
        _optional("ignored_rate", sa.BigInteger),
        _optional("ignored_total", sa.BigInteger),
        _needed("resolved_in", name(), server_default=""),
        _optional("failed_in", LONG_TEXT),
        _optional("regressed_at", Moment),
        _needed("owner", name(), server_default=""),
        _optional("note", LONG_TEXT),
        _needed("route", name(64), server_default=""),
        _needed("place", name(64), server_default=""),
        _needed("regroup", name(), server_default=""),
        _needed("regrouped_to", sa.BigInteger, server_default="0"),
        indexes=[["place"], ["regroup"]],
    )
    _create(
        "celery_dlq_alias", ["name"],
        _needed("name", name(64)),
        _needed("fingerprint", name(64)),
        _needed("why", name()),
        _needed("who", name()),
        _needed("at", Moment),
        indexes=[["fingerprint"]],
    )
    _create(
        "celery_dead_letter_trend", ["fingerprint", "hour"],
        _needed("fingerprint", name(64)),
        _needed("hour", Moment),
        _needed("count", sa.BigInteger),
        _needed("open_count", sa.BigInteger),
        indexes=[["hour"]],
    )
    _create(
        "celery_dead_letter_arrival", ["minute", "task", "exception_type"],
        _needed("minute", Moment),
        _needed("task", name()),
        _needed("exception_type", name()),
        _needed("count", sa.BigInteger),
    )
    _create(
        "celery_dead_letter_count", ["id"],
        _needed("id", name(64)),
        _needed("task", name()),
        _needed("queue", name()),
        _needed("reason", name(16)),
        _needed("exception_type", name()),
        _needed("open_count", sa.BigInteger),
        _needed("arrived_count", sa.BigInteger),
        _needed("succeeded_count", sa.BigInteger),
        _needed("failed_count", sa.BigInteger),
        _needed("first_seen_at", Moment),
        _needed("route", name(64), server_default=""),
    )


def _create_redrives() -> None:
    _create(
        "celery_dlq_operation", ["id"],
        _needed("id", name(32)),
        _needed("state", name(16)),
        _needed("cause", LONG_TEXT),
        _needed("wanted", LONG_TEXT),
        _needed("orders", LONG_TEXT),
        _needed("planned", sa.BigInteger),
        _needed("who", name()),
        _needed("host", name()),
        _needed("detached", sa.Boolean),
        _needed("created_at", Moment),
        _optional("started_at", Moment),
        _optional("ended_at", Moment),
        _needed("app", name(), server_default=""),
        _needed("broker", name(), server_default=""),
        _needed("sent_again", sa.BigInteger, server_default="0"),
        indexes=[["created_at"], ["state", "created_at"], ["ended_at"]],
    )
    _create(
        "celery_dead_letter_redrive", ["operation", "task_id"],
        _needed("operation", name(32)),
        _needed("task_id", name()),
        _needed("task", name()),
        _needed("redrive", sa.Integer),
        _needed("state", name(16)),
        _needed("was", name(16)),
        _needed("copy", name(64)),
        _needed("copies", sa.Integer),
        _optional("accepted", name(64)),
        _needed("why", LONG_TEXT),
        _needed("fingerprint", name(64)),
        _needed("change", LONG_TEXT),
        _needed("claimed_at", Moment),
        _optional("sent_at", Moment),
        _optional("ended_at", Moment),
        _optional("failed_at", Moment),
        _needed("cause", name(64), server_default=""),
        _needed("sent_again", sa.Integer, server_default="0"),
        _optional("sent_again_at", Moment),
        indexes=[["task_id", "redrive"], ["state", "operation", "ended_at"]],
    )
    _create(
        "celery_dlq_claim", ["token"],
        _needed("token", name(64)),
        _needed("operation", name(32)),
        _needed("letters", sa.Integer),
        _needed("lease_expires_at", Moment),
    )


def _create_runs_and_waits() -> None:
    _create(
        "celery_dlq_delivery", ["task_id", "redrive", "attempt", "started_at"],
        _needed("task_id", name()),
        _needed("task", name()),
        _needed("redrive", sa.Integer),
        _needed("attempt", sa.Integer),
        _needed("number", sa.Integer),
        _needed("started_at", Moment),
        _needed("worker", name()),
        _needed("process", name()),
        _needed("alone", sa.Boolean),
        _needed("death", LONG_TEXT),
        _needed("ended", sa.Boolean, server_default=sa.false()),
        indexes=[["started_at"]],
    )
    _create(
        "celery_dlq_parked", ["id"],
        _needed("id", BIG_ID, autoincrement=True),
        _needed("parking", name(64)),
        _needed("place", name(16)),
        _needed("task_id", name()),
        _needed("task", name()),
        _needed("state", name(16)),
        _needed("reason", name(16)),
        _needed("exception_type", name()),
        _needed("message", LONG_TEXT),
        _needed("fingerprint", name(64)),
        _needed("args", LONG_TEXT),
        _needed("kwargs", LONG_TEXT),
        _needed("last_failed_at", Moment),
        _needed("worker", name()),
        _needed("queue", name()),
        _needed("due_at", Moment),
        _needed("next_at", Moment),
        _needed("copies", sa.Integer),
        _optional("accepted", sa.Integer),
        _needed("record", BYTES),
        _needed("body", BYTES),
        _needed("route", name(64), server_default=""),
        _optional("release", name()),
        _optional("root_id", name()),
        _optional("tags", LONG_TEXT),
        _optional("verdict", name(16)),
        _optional("rule", name()),
        unique=["parking"],
        indexes=[["state", "place", "next_at", "id"], ["task_id"]],
    )
    _create(
        "celery_dlq_lease", ["name"],
        _needed("name", name(64)),
        _needed("holder", name()),
        _needed("token", sa.BigInteger),
        _needed("expires_at", Moment),
    )
    _create(
        "celery_dlq_breaker", ["task", "key"],
        _needed("task", name()),
        _needed("key", name()),
        _needed("state", name(16)),
        _needed("recent", LONG_TEXT),
        _needed("failures", sa.Integer),
        _optional("opened_at", Moment),
        _needed("probes", sa.Integer),
        _optional("probe_at", Moment),
        _needed("probe", name(64)),
        _optional("probe_until", Moment),
        _needed("changed_at", Moment),
        indexes=[["state", "opened_at"], ["changed_at"]],
    )


def _create_automation() -> None:
    _create(
        "celery_dlq_auto_redrive", ["name"],
        _needed("name", name(64)),
        _needed("state", name(16)),
        _optional("at", Moment),
        _needed("who", name()),
        _needed("why", LONG_TEXT),
        _optional("looked_at", Moment),
    )
    _create(
        "celery_dlq_auto_run", ["id"],
        _needed("id", name(32)),
        _needed("name", name(64)),
        _needed("mode", name(16)),
        _needed("at", Moment),
        _needed("letters", sa.Integer),
        indexes=[["name", "at"], ["at"]],
    )
    _create(
        "celery_dlq_auto_letter", ["run", "task_id"],
        _needed("run", name(32)),
        _needed("task_id", name()),
        _needed("fingerprint", name(64)),
        indexes=[["task_id"]],
    )
    _create(
        "celery_dlq_held", ["task_id"],
        _needed("task_id", name()),
        _needed("name", name(64)),
        _needed("why", LONG_TEXT),
        _needed("at", Moment),
    )
    _create(
        "celery_dlq_handling", ["id"],
        _needed("id", BIG_ID, autoincrement=True),
        _needed("task_id", name()),
        _needed("handler", name(100)),
        _needed("version", name(64)),
        _needed("failed_at", Moment),
        _needed("fingerprint", name(64)),
        _needed("state", name(16)),
        _needed("verdict", name(16)),
        _needed("detail", LONG_TEXT),
        _needed("error", LONG_TEXT),
        _needed("sends", sa.Integer),
        _needed("tries", sa.Integer),
        _needed("queued_at", Moment),
        _optional("due_at", Moment),
        _optional("started_at", Moment),
        _optional("ended_at", Moment),
        _needed("worker", name()),
        _needed("operation", name(32)),
        unique=["task_id", "handler", "version", "failed_at"],
        indexes=[["state", "due_at"], ["handler", "queued_at"], ["fingerprint", "handler"], ["ended_at"]],
    )
    _create(
        "celery_dlq_ticket", ["fingerprint", "kind"],
        _needed("fingerprint", name(64)),
        _needed("kind", name(16)),
        _needed("url", LONG_TEXT),
        _needed("recipient", name()),
        _needed("why", LONG_TEXT),
        _needed("handler", name(100)),
        _needed("at", Moment),
    )


def _create_records() -> None:
    _create(
        "celery_dlq_audit", ["id"],
        _needed("id", BIG_ID, autoincrement=True),
        _needed("at", Moment),
        _needed("who", name()),
        _needed("act", name(64)),
        _needed("count", sa.BigInteger),
        _needed("why", LONG_TEXT),
        _needed("detail", LONG_TEXT),
        _needed("host", name(), server_default=""),
        _needed("subject", name(), server_default=""),
        indexes=[["subject", "id"], ["at"]],
    )
    _create(
        "celery_dlq_segment", ["id"],
        _needed("id", name(32)),
        _needed("chain", name(8)),
        _needed("number", sa.Integer),
        _needed("state", name(16)),
        _needed("letters", sa.Integer),
        _needed("size", sa.BigInteger),
        _needed("deleted", sa.Integer),
        _needed("manifest", name(64)),
        _needed("begun_at", Moment),
        _optional("ended_at", Moment),
        unique=["number"],
    )
    _create(
        "celery_dlq_report", ["name"],
        _needed("name", name(64)),
        _needed("at", Moment),
        _needed("detail", LONG_TEXT),
    )
    _create(
        "celery_dlq_saved_filter", ["name"],
        _needed("name", name(64)),
        _needed("fields", LONG_TEXT),
        _needed("who", name()),
        _needed("at", Moment),
    )
