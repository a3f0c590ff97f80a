"""Parked retries, and the leases of what one worker at a time does."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import BIG_ID, BYTES, LONG_TEXT, Moment, name

revision = "0004"
down_revision = "0003"

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    _create_parked()
    op.create_table(
        "celery_dlq_lease",
        sa.Column("name", name(64), nullable=False),
        sa.Column("holder", name(), nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("expires_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_celery_dlq_lease"),
        **_OPTIONS,
    )


def _create_parked() -> None:
    op.create_table(
        "celery_dlq_parked",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("parking", name(64), nullable=False),
        sa.Column("place", name(16), nullable=False),
        sa.Column("task_id", name(), nullable=False),
        sa.Column("task", name(), nullable=False),
        sa.Column("state", name(16), nullable=False),
        sa.Column("reason", name(16), nullable=False),
        sa.Column("exception_type", name(), nullable=False),
        sa.Column("message", LONG_TEXT, nullable=False),
        sa.Column("fingerprint", name(64), nullable=False),
        sa.Column("args", LONG_TEXT, nullable=False),
        sa.Column("kwargs", LONG_TEXT, nullable=False),
        sa.Column("last_failed_at", Moment, nullable=False),
        sa.Column("worker", name(), nullable=False),
        sa.Column("queue", name(), nullable=False),
        sa.Column("due_at", Moment, nullable=False),
        sa.Column("next_at", Moment, nullable=False),
        sa.Column("copies", sa.Integer, nullable=False),
        sa.Column("accepted", sa.Integer),
        sa.Column("record", BYTES, nullable=False),
        sa.Column("body", BYTES, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_celery_dlq_parked"),
        sa.UniqueConstraint("parking", name="uq_celery_dlq_parked_parking"),
        **_OPTIONS,
    )
    op.create_index(
        "ix_celery_dlq_parked_state", "celery_dlq_parked", ["state", "place", "next_at", "id"]
    )
    op.create_index("ix_celery_dlq_parked_task_id", "celery_dlq_parked", ["task_id"])
