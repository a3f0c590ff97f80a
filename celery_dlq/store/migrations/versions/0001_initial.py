"""Letters, their attempts, the rollups, and the audit.

The column types come from the package: they are a vocabulary, and a word there never changes its
meaning.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import BIG_ID, BYTES, LONG_TEXT, Moment, name

revision = "0001"
down_revision = None

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    _create_letters()
    _create_attempts()
    _create_rollups()
    _create_audit()


def _create_letters() -> None:
    op.create_table(
        "celery_dead_letter",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("task_id", name(), nullable=False),
        sa.Column("task", name(), nullable=False),
        sa.Column("state", name(16), nullable=False),
        sa.Column("reason", name(16), nullable=False),
        sa.Column("verdict", name(16), nullable=False),
        sa.Column("rule", name(), nullable=False),
        sa.Column("evidence", LONG_TEXT, nullable=False),
        sa.Column("path", LONG_TEXT, nullable=False),
        sa.Column("exception_type", name(), nullable=False),
        sa.Column("message", LONG_TEXT, nullable=False),
        sa.Column("traceback", LONG_TEXT, nullable=False),
        sa.Column("fingerprint", name(64), nullable=False),
        sa.Column("args", LONG_TEXT, nullable=False),
        sa.Column("kwargs", LONG_TEXT, nullable=False),
        sa.Column("first_failed_at", Moment, nullable=False),
        sa.Column("last_failed_at", Moment, nullable=False),
        sa.Column("last_redrive", sa.Integer, nullable=False),
        sa.Column("redrive_count", sa.Integer, nullable=False),
        sa.Column("attempt_count", sa.Integer, nullable=False),
        sa.Column("worker", name(), nullable=False),
        sa.Column("pid", sa.BigInteger),
        sa.Column("release", name(), nullable=False),
        sa.Column("root_id", name()),
        sa.Column("parent_id", name()),
        sa.Column("group_id", name()),
        sa.Column("correlation_id", name()),
        sa.Column("canvas", name(16), nullable=False),
        sa.Column("tags", LONG_TEXT, nullable=False),
        sa.Column("body", BYTES, nullable=False),
        sa.Column("content_type", name(), nullable=False),
        sa.Column("content_encoding", name(), nullable=False),
        sa.Column("headers", LONG_TEXT, nullable=False),
        sa.Column("properties", LONG_TEXT, nullable=False),
        sa.Column("exchange", name(), nullable=False),
        sa.Column("routing_key", name(), nullable=False),
        sa.Column("queue", name(), nullable=False),
        sa.Column("claim_token", name(64)),
        sa.Column("lease_expires_at", Moment),
        sa.Column("closed_at", Moment),
        sa.Column("closed_by", name(), nullable=False),
        sa.Column("closed_reason", LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_celery_dead_letter"),
        sa.UniqueConstraint("task_id", name="uq_celery_dead_letter_task_id"),
        **_OPTIONS,
    )
    op.create_index(
        "ix_celery_dead_letter_state",
        "celery_dead_letter",
        ["state", "last_failed_at", "id", "reason"],
    )
    for column in ("task", "exception_type", "fingerprint", "queue"):
        op.create_index(
            f"ix_celery_dead_letter_{column}",
            "celery_dead_letter",
            [column, "state", "last_failed_at", "id"],
        )


def _create_attempts() -> None:
    op.create_table(
        "celery_dead_letter_attempt",
        sa.Column("task_id", name(), nullable=False),
        sa.Column("redrive", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("failed_at", Moment, nullable=False),
        sa.Column("exception_type", name(), nullable=False),
        sa.Column("message", LONG_TEXT, nullable=False),
        sa.Column("verdict", name(16), nullable=False),
        sa.Column("rule", name(), nullable=False),
        sa.Column("delay_s", sa.Double),
        sa.Column("worker", name(), nullable=False),
        sa.Column("pid", sa.BigInteger),
        sa.PrimaryKeyConstraint(
            "task_id", "redrive", "number", "failed_at", name="pk_celery_dead_letter_attempt"
        ),
        **_OPTIONS,
    )


def _create_rollups() -> None:
    op.create_table(
        "celery_dead_letter_group",
        sa.Column("fingerprint", name(64), nullable=False),
        sa.Column("task", name(), nullable=False),
        sa.Column("exception_type", name(), nullable=False),
        sa.Column("message", LONG_TEXT, nullable=False),
        sa.Column("open_count", sa.BigInteger, nullable=False),
        sa.Column("resolved_count", sa.BigInteger, nullable=False),
        sa.Column("discarded_count", sa.BigInteger, nullable=False),
        sa.Column("total_count", sa.BigInteger, nullable=False),
        sa.Column("first_seen_at", Moment, nullable=False),
        sa.Column("last_seen_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint(
            "fingerprint", "task", "exception_type", name="pk_celery_dead_letter_group"
        ),
        **_OPTIONS,
    )
    op.create_table(
        "celery_dead_letter_arrival",
        sa.Column("minute", Moment, nullable=False),
        sa.Column("task", name(), nullable=False),
        sa.Column("exception_type", name(), nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint(
            "minute", "task", "exception_type", name="pk_celery_dead_letter_arrival"
        ),
        **_OPTIONS,
    )


def _create_audit() -> None:
    op.create_table(
        "celery_dlq_audit",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("at", Moment, nullable=False),
        sa.Column("who", name(), nullable=False),
        sa.Column("act", name(64), nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("why", LONG_TEXT, nullable=False),
        sa.Column("detail", LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_celery_dlq_audit"),
        **_OPTIONS,
    )
