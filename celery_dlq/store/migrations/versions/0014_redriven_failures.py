"""After which failure a letter was redriven."""

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import Moment, name

revision = "0014"
down_revision = "0013"

_REDRIVE = "celery_dead_letter_redrive"


def upgrade() -> None:
    # MySQL commits each step at once, and an earlier upgrade may have been cut off between them. What the SQL
    # that is printed will find is not known.
    context = op.get_context()
    found = set() if context.as_sql else _columns(op.get_bind())
    # Redrives that are there already have neither.
    for column in (
        sa.Column("failed_at", Moment),
        sa.Column("cause", name(64), nullable=False, server_default=""),
    ):
        if column.name not in found:
            op.add_column(_REDRIVE, column)


def _columns(connection: sa.Connection) -> set[str]:
    return {item["name"] for item in sa.inspect(connection).get_columns(_REDRIVE)}
