"""Redrives as operations, the history of changed messages, and from where an act was done."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import BIG_ID, BYTES, LONG_TEXT, Moment, name

revision = "0005"
down_revision = "0004"

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    _create_operation()
    _create_redrive()
    _create_change()
    op.add_column(
        "celery_dlq_audit", sa.Column("host", name(), nullable=False, server_default="")
    )


def _create_operation() -> None:
    op.create_table(
        "celery_dlq_operation",
        sa.Column("id", name(32), nullable=False),
        sa.Column("state", name(16), nullable=False),
        sa.Column("cause", LONG_TEXT, nullable=False),
        sa.Column("wanted", LONG_TEXT, nullable=False),
        sa.Column("orders", LONG_TEXT, nullable=False),
        sa.Column("planned", sa.BigInteger, nullable=False),
        sa.Column("who", name(), nullable=False),
        sa.Column("host", name(), nullable=False),
        sa.Column("detached", sa.Boolean, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("started_at", Moment),
        sa.Column("ended_at", Moment),
        sa.PrimaryKeyConstraint("id", name="pk_celery_dlq_operation"),
        **_OPTIONS,
    )
    op.create_index("ix_celery_dlq_operation_created_at", "celery_dlq_operation", ["created_at"])
    op.create_index(
        "ix_celery_dlq_operation_state", "celery_dlq_operation", ["state", "created_at"]
    )


def _create_redrive() -> None:
    op.create_table(
        "celery_dead_letter_redrive",
        sa.Column("operation", name(32), nullable=False),
        sa.Column("task_id", name(), nullable=False),
        sa.Column("task", name(), nullable=False),
        sa.Column("redrive", sa.Integer, nullable=False),
        sa.Column("state", name(16), nullable=False),
        sa.Column("was", name(16), nullable=False),
        sa.Column("copy", name(64), nullable=False),
        sa.Column("copies", sa.Integer, nullable=False),
        sa.Column("accepted", name(64)),
        sa.Column("why", LONG_TEXT, nullable=False),
        sa.Column("fingerprint", name(64), nullable=False),
        sa.Column("change", LONG_TEXT, nullable=False),
        sa.Column("claimed_at", Moment, nullable=False),
        sa.Column("sent_at", Moment),
        sa.Column("ended_at", Moment),
        sa.PrimaryKeyConstraint("operation", "task_id", name="pk_celery_dead_letter_redrive"),
        **_OPTIONS,
    )
    op.create_index(
        "ix_celery_dead_letter_redrive_task_id",
        "celery_dead_letter_redrive",
        ["task_id", "redrive"],
    )
    op.create_index(
        "ix_celery_dead_letter_redrive_state",
        "celery_dead_letter_redrive",
        ["state", "operation", "ended_at"],
    )


def _create_change() -> None:
    op.create_table(
        "celery_dead_letter_change",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("task_id", name(), nullable=False),
        sa.Column("at", Moment, nullable=False),
        sa.Column("who", name(), nullable=False),
        sa.Column("how", name(64), nullable=False),
        sa.Column("diff", LONG_TEXT, nullable=False),
        sa.Column("body", BYTES, nullable=False),
        sa.Column("content_type", name(), nullable=False),
        sa.Column("content_encoding", name(), nullable=False),
        sa.Column("headers", LONG_TEXT, nullable=False),
        sa.Column("properties", LONG_TEXT, nullable=False),
        sa.Column("exchange", name(), nullable=False),
        sa.Column("routing_key", name(), nullable=False),
        sa.Column("queue", name(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_celery_dead_letter_change"),
        **_OPTIONS,
    )
    op.create_index(
        "ix_celery_dead_letter_change_task_id", "celery_dead_letter_change", ["task_id", "id"]
    )
