"""Deliveries: runs of redelivered messages that have not ended."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import LONG_TEXT, Moment, name

revision = "0002"
down_revision = "0001"

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    op.create_table(
        "celery_dlq_delivery",
        sa.Column("task_id", name(), nullable=False),
        sa.Column("task", name(), nullable=False),
        sa.Column("redrive", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("started_at", Moment, nullable=False),
        sa.Column("worker", name(), nullable=False),
        sa.Column("process", name(), nullable=False),
        sa.Column("alone", sa.Boolean, nullable=False),
        sa.Column("death", LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint(
            "task_id", "redrive", "attempt", "started_at", name="pk_celery_dlq_delivery"
        ),
        **_OPTIONS,
    )
    op.create_index("ix_celery_dlq_delivery_started_at", "celery_dlq_delivery", ["started_at"])
