"""What people decide about groups, and the arrivals of each group by the hour."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import LONG_TEXT, Moment, name

revision = "0007"
down_revision = "0006"

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


_OPEN = ("dead", "claimed", "redriven")

#: The hour of the last failure. In SQLite, moments are texts.
_HOUR = {
    "sqlite": "substr(last_failed_at, 1, 13) || ':00:00.000000'",
    "postgresql": "date_trunc('hour', last_failed_at, 'UTC')",
    "mysql": "timestamp(date(last_failed_at), maketime(hour(last_failed_at), 0, 0))",
}


def upgrade() -> None:
    for column in (
        sa.Column("status", name(16), nullable=False, server_default="open"),
        sa.Column("status_at", Moment),
        sa.Column("status_by", name(), nullable=False, server_default=""),
        sa.Column("ignored_until", Moment),
        sa.Column("ignored_rate", sa.BigInteger),
        sa.Column("ignored_total", sa.BigInteger),
        sa.Column("resolved_in", name(), nullable=False, server_default=""),
        sa.Column("failed_in", LONG_TEXT),
        sa.Column("regressed_at", Moment),
        sa.Column("owner", name(), nullable=False, server_default=""),
        sa.Column("note", LONG_TEXT),
    ):
        op.add_column("celery_dead_letter_group", column)
    trend = op.create_table(
        "celery_dead_letter_trend",
        sa.Column("fingerprint", name(64), nullable=False),
        sa.Column("hour", Moment, nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("open_count", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", "hour", name="pk_celery_dead_letter_trend"),
        **_OPTIONS,
    )
    op.create_index("ix_celery_dead_letter_trend_hour", "celery_dead_letter_trend", ["hour"])
    _count_letters(trend)


def _count_letters(trend: sa.Table) -> None:
    """What is stored already; of each letter, its last arrival is known."""
    letter = sa.table(
        "celery_dead_letter",
        sa.column("fingerprint", sa.String),
        sa.column("state", sa.String),
        sa.column("last_failed_at", Moment),
    )
    hour: sa.ColumnElement[Any] = sa.literal_column(_HOUR[op.get_context().dialect.name])
    # Written out: the SQL may be printed, and run by hand.
    is_open = letter.c.state.in_([sa.literal_column(f"'{state}'") for state in _OPEN])
    one: sa.ColumnElement[int] = sa.literal_column("1")
    none: sa.ColumnElement[int] = sa.literal_column("0")
    counted = sa.select(
        letter.c.fingerprint, hour, sa.func.count(), sa.func.sum(sa.case((is_open, one), else_=none))
    ).group_by(letter.c.fingerprint, hour)
    columns = [column.name for column in trend.columns]
    op.execute(sa.insert(trend).from_select(columns, counted))
