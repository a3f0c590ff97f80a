"""The route of each letter, of each group's newest failure, of counts and of parked retries."""

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import name

revision = "0013"
down_revision = "0012"

_LETTER = "celery_dead_letter"
_TABLES = (_LETTER, "celery_dead_letter_group", "celery_dead_letter_count", "celery_dlq_parked")


def upgrade() -> None:
    # MySQL commits each step at once, and an earlier upgrade may have been cut off after any of them. What
    # the SQL that is printed will find is not known.
    found = None if op.get_context().as_sql else sa.inspect(op.get_bind())
    for table in _TABLES:
        if found is None or "route" not in {item["name"] for item in found.get_columns(table)}:
            # Letters that are there already have none.
            column = sa.Column("route", name(64), nullable=False, server_default="")
            op.add_column(table, column)
    index = f"ix_{_LETTER}_route"
    if found is None or index not in {item["name"] for item in found.get_indexes(_LETTER)}:
        op.create_index(index, _LETTER, ["route", "state", "last_failed_at", "id"])
