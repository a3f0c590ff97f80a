"""What repair handlers did about letters, and the tickets of groups."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import BIG_ID, LONG_TEXT, Moment, name

revision = "0012"
down_revision = "0011"

_HANDLING, _TICKET = "celery_dlq_handling", "celery_dlq_ticket"

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    _create_handling()
    op.create_table(
        _TICKET,
        sa.Column("fingerprint", name(64), nullable=False),
        sa.Column("kind", name(16), nullable=False),
        sa.Column("url", LONG_TEXT, nullable=False),
        sa.Column("recipient", name(), nullable=False),
        sa.Column("why", LONG_TEXT, nullable=False),
        sa.Column("handler", name(100), nullable=False),
        sa.Column("at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", "kind", name=f"pk_{_TICKET}"),
        **_OPTIONS,
    )


def _create_handling() -> None:
    op.create_table(
        _HANDLING,
        sa.Column("id", BIG_ID, nullable=False, autoincrement=True),
        sa.Column("task_id", name(), nullable=False),
        sa.Column("handler", name(100), nullable=False),
        sa.Column("version", name(64), nullable=False),
        sa.Column("failed_at", Moment, nullable=False),
        sa.Column("fingerprint", name(64), nullable=False),
        sa.Column("state", name(16), nullable=False),
        sa.Column("verdict", name(16), nullable=False),
        sa.Column("detail", LONG_TEXT, nullable=False),
        sa.Column("error", LONG_TEXT, nullable=False),
        sa.Column("sends", sa.Integer, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("queued_at", Moment, nullable=False),
        sa.Column("due_at", Moment),
        sa.Column("started_at", Moment),
        sa.Column("ended_at", Moment),
        sa.Column("worker", name(), nullable=False),
        sa.Column("operation", name(32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=f"pk_{_HANDLING}"),
        sa.UniqueConstraint(
            "task_id", "handler", "version", "failed_at", name=f"uq_{_HANDLING}_task_id"
        ),
        **_OPTIONS,
    )
    for columns in (
        ["state", "due_at"],
        ["handler", "queued_at"],
        ["fingerprint", "handler"],
        ["ended_at"],
    ):
        op.create_index(f"ix_{_HANDLING}_{columns[0]}", _HANDLING, columns)
