"""The segments of the archive."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import Moment, name

revision = "0015"
down_revision = "0014"

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    # MySQL commits each step at once, and an earlier upgrade may have been cut off after this one. What the
    # SQL that is printed will find is not known.
    if not op.get_context().as_sql and sa.inspect(op.get_bind()).has_table("celery_dlq_segment"):
        return
    op.create_table(
        "celery_dlq_segment",
        sa.Column("id", name(32), nullable=False),
        sa.Column("chain", name(8), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("state", name(16), nullable=False),
        sa.Column("letters", sa.Integer, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("deleted", sa.Integer, nullable=False),
        sa.Column("manifest", name(64), nullable=False),
        sa.Column("begun_at", Moment, nullable=False),
        sa.Column("ended_at", Moment),
        sa.PrimaryKeyConstraint("id", name="pk_celery_dlq_segment"),
        sa.UniqueConstraint("number", name="uq_celery_dlq_segment_number"),
        **_OPTIONS,
    )
