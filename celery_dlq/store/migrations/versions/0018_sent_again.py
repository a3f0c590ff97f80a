"""How often the message of a redrive was sent again because it had vanished; and how many of an operation."""

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import Moment

revision = "0018"
down_revision = "0017"

_REDRIVE, _OPERATION = "celery_dead_letter_redrive", "celery_dlq_operation"


def upgrade() -> None:
    for table, column in (
        (_REDRIVE, sa.Column("sent_again", sa.Integer(), nullable=False, server_default="0")),
        (_REDRIVE, sa.Column("sent_again_at", Moment)),
        (_OPERATION, sa.Column("sent_again", sa.BigInteger(), nullable=False, server_default="0")),
    ):
        # As in 0014: on MySQL, an earlier upgrade may have been cut off between these steps.
        if op.get_context().as_sql or column.name not in _columns(table):
            op.add_column(table, column)


def _columns(table: str) -> set[str]:
    return {item["name"] for item in sa.inspect(op.get_bind()).get_columns(table)}
