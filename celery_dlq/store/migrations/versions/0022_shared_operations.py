"""Operations that several processes carry: the letters that were allotted to them, and whose each claim is."""

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import Moment, name

revision = "0022"
down_revision = "0021"

_OPERATION, _CLAIM = "celery_dlq_operation", "celery_dlq_claim"


def upgrade() -> None:
    for table, column in (
        (_OPERATION, sa.Column("allotted", sa.BigInteger(), nullable=False, server_default="0")),
        (_OPERATION, sa.Column("paced_from", Moment)),
        (_CLAIM, sa.Column("holder", name(), nullable=False, server_default="")),
        (_CLAIM, sa.Column("reserved", sa.Integer(), nullable=False, server_default="0")),
    ):
        # As in 0014: on MySQL, an earlier upgrade may have been cut off between these steps.
        if op.get_context().as_sql or column.name not in _columns(table):
            op.add_column(table, column)


def _columns(table: str) -> set[str]:
    return {item["name"] for item in sa.inspect(op.get_bind()).get_columns(table)}
