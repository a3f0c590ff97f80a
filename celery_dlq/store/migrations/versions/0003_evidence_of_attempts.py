"""Each attempt keeps what its verdict was founded on."""

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import name

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    for column in ("evidence", "path"):
        # Attempts that are there already have neither.
        op.add_column(
            "celery_dead_letter_attempt",
            sa.Column(column, name(500), nullable=False, server_default=""),
        )
