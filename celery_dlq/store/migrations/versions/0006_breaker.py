"""Circuits: whether the messages of a task, or of one key of it, may run."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import LONG_TEXT, Moment, name

revision = "0006"
down_revision = "0005"

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    op.create_table(
        "celery_dlq_breaker",
        sa.Column("task", name(), nullable=False),
        sa.Column("key", name(), nullable=False),
        sa.Column("state", name(16), nullable=False),
        sa.Column("recent", LONG_TEXT, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("opened_at", Moment),
        sa.Column("probes", sa.Integer, nullable=False),
        sa.Column("probe_at", Moment),
        sa.Column("probe", name(64), nullable=False),
        sa.Column("probe_until", Moment),
        sa.Column("changed_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("task", "key", name="pk_celery_dlq_breaker"),
        **_OPTIONS,
    )
    op.create_index("ix_celery_dlq_breaker_state", "celery_dlq_breaker", ["state", "opened_at"])
    op.create_index("ix_celery_dlq_breaker_changed_at", "celery_dlq_breaker", ["changed_at"])
