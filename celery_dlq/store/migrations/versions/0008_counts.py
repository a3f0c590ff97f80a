"""Counts by task, queue, reason and exception type: open letters, arrivals, outcomes of redrives."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import Moment, name

revision = "0008"
down_revision = "0007"

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}

_OPEN = ("dead", "claimed", "redriven")


def upgrade() -> None:
    count = op.create_table(
        "celery_dead_letter_count",
        sa.Column("id", name(64), nullable=False),
        sa.Column("task", name(), nullable=False),
        sa.Column("queue", name(), nullable=False),
        sa.Column("reason", name(16), nullable=False),
        sa.Column("exception_type", name(), nullable=False),
        sa.Column("open_count", sa.BigInteger, nullable=False),
        sa.Column("arrived_count", sa.BigInteger, nullable=False),
        sa.Column("succeeded_count", sa.BigInteger, nullable=False),
        sa.Column("failed_count", sa.BigInteger, nullable=False),
        sa.Column("first_seen_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_celery_dead_letter_count"),
        **_OPTIONS,
    )
    _count_letters(count)


def _count_letters(count: sa.Table) -> None:
    """What is stored already. Nothing but the sum over rows counts, so these need not have the ids that
    later changes are added under."""
    letter = sa.table(
        "celery_dead_letter",
        sa.column("id", sa.BigInteger),
        sa.column("state", sa.String),
        sa.column("first_failed_at", Moment),
        *(sa.column(key, sa.String) for key in ("task", "queue", "reason", "exception_type")),
    )
    keys = [letter.c[key] for key in ("task", "queue", "reason", "exception_type")]
    # Written out: the SQL may be printed, and run by hand.
    is_open = letter.c.state.in_([sa.literal_column(f"'{state}'") for state in _OPEN])
    rows = sa.select(
        sa.cast(sa.func.min(letter.c.id), sa.String(64)),
        *keys,
        sa.func.sum(sa.case((is_open, sa.literal_column("1")), else_=sa.literal_column("0"))),
        sa.func.count(),
        sa.literal_column("0"),
        sa.literal_column("0"),
        sa.func.min(letter.c.first_failed_at),
    ).group_by(*keys)
    columns = [column.name for column in count.columns]
    op.execute(sa.insert(count).from_select(columns, rows))
