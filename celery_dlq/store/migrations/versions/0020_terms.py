"""The values by which people look for letters, as hashes."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

_TABLE = "celery_dead_letter_term"
_INDEX = f"ix_{_TABLE}_value"

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    # As in 0015: on MySQL, an earlier upgrade may have been cut off between these steps.
    found = None if op.get_context().as_sql else sa.inspect(op.get_bind())
    if found is None or not found.has_table(_TABLE):
        op.create_table(
            _TABLE,
            sa.Column("letter", sa.BigInteger(), nullable=False),
            sa.Column("value", sa.BigInteger(), nullable=False),
            sa.Column("path", sa.Integer(), nullable=False),
            sa.PrimaryKeyConstraint("letter", "value", "path", name=f"pk_{_TABLE}"),
            **_OPTIONS,
        )
    if found is None or _INDEX not in _indexes():
        op.create_index(_INDEX, _TABLE, ["value", "path", "letter"])


def _indexes() -> set[str | None]:
    return {item["name"] for item in sa.inspect(op.get_bind()).get_indexes(_TABLE)}
