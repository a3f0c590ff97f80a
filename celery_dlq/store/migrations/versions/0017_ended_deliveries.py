"""Deliveries of messages that have ended, which a recovery asks for."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    # As in 0015: on MySQL, an earlier upgrade may have been cut off after this step.
    if not op.get_context().as_sql and "ended" in _columns():
        return
    op.add_column(
        "celery_dlq_delivery",
        sa.Column("ended", sa.Boolean(), nullable=False, server_default=sa.false()),
    )


def _columns() -> set[str]:
    found = sa.inspect(op.get_bind()).get_columns("celery_dlq_delivery")
    return {column["name"] for column in found}
