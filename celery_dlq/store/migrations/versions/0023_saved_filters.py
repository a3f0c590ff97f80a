"""The filters that people have saved for all."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import LONG_TEXT, Moment, name

revision = "0023"
down_revision = "0022"

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    # As in 0015: on MySQL, an earlier upgrade may have been cut off after this step.
    if not op.get_context().as_sql and sa.inspect(op.get_bind()).has_table(
        "celery_dlq_saved_filter"
    ):
        return
    op.create_table(
        "celery_dlq_saved_filter",
        sa.Column("name", name(64), nullable=False),
        sa.Column("fields", LONG_TEXT, nullable=False),
        sa.Column("who", name(), nullable=False),
        sa.Column("at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_celery_dlq_saved_filter"),
        **_OPTIONS,
    )
