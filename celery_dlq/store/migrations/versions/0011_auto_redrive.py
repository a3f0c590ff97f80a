"""Automatic redrives: their states and runs, the letters of each run, and letters held for a person."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import LONG_TEXT, Moment, name

revision = "0011"
down_revision = "0010"

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    op.create_table(
        "celery_dlq_auto_redrive",
        sa.Column("name", name(64), nullable=False),
        sa.Column("state", name(16), nullable=False),
        sa.Column("at", Moment),
        sa.Column("who", name(), nullable=False),
        sa.Column("why", LONG_TEXT, nullable=False),
        sa.Column("looked_at", Moment),
        sa.PrimaryKeyConstraint("name", name="pk_celery_dlq_auto_redrive"),
        **_OPTIONS,
    )
    _create_runs()
    op.create_table(
        "celery_dlq_held",
        sa.Column("task_id", name(), nullable=False),
        sa.Column("name", name(64), nullable=False),
        sa.Column("why", LONG_TEXT, nullable=False),
        sa.Column("at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("task_id", name="pk_celery_dlq_held"),
        **_OPTIONS,
    )


def _create_runs() -> None:
    op.create_table(
        "celery_dlq_auto_run",
        sa.Column("id", name(32), nullable=False),
        sa.Column("name", name(64), nullable=False),
        sa.Column("mode", name(16), nullable=False),
        sa.Column("at", Moment, nullable=False),
        sa.Column("letters", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_celery_dlq_auto_run"),
        **_OPTIONS,
    )
    op.create_index("ix_celery_dlq_auto_run_name", "celery_dlq_auto_run", ["name", "at"])
    op.create_index("ix_celery_dlq_auto_run_at", "celery_dlq_auto_run", ["at"])
    op.create_table(
        "celery_dlq_auto_letter",
        sa.Column("run", name(32), nullable=False),
        sa.Column("task_id", name(), nullable=False),
        sa.Column("fingerprint", name(64), nullable=False),
        sa.PrimaryKeyConstraint("run", "task_id", name="pk_celery_dlq_auto_letter"),
        **_OPTIONS,
    )
    op.create_index("ix_celery_dlq_auto_letter_task_id", "celery_dlq_auto_letter", ["task_id"])
