"""Groups and fingerprints are two things: aliases, and the facts by which letters are grouped."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import LONG_TEXT, Moment, name

revision = "0024"
down_revision = "0023"

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}

_LETTER, _CONTENT = "celery_dead_letter", "celery_dead_letter_content"
_GROUP, _ALIAS = "celery_dead_letter_group", "celery_dlq_alias"


def upgrade() -> None:
    # As in 0015: on MySQL, an earlier upgrade may have been cut off after any step.
    found = None if op.get_context().as_sql else sa.inspect(op.get_bind())
    for table, column in (
        (_LETTER, sa.Column("raw_fingerprint", name(64), nullable=False, server_default="")),
        (_CONTENT, sa.Column("grounds", LONG_TEXT)),
        (_GROUP, sa.Column("place", name(64), nullable=False, server_default="")),
        (_GROUP, sa.Column("regroup", name(), nullable=False, server_default="")),
        (_GROUP, sa.Column("regrouped_to", sa.BigInteger, nullable=False, server_default="0")),
    ):
        if found is None or column.name not in {one["name"] for one in found.get_columns(table)}:
            op.add_column(table, column)
    for indexed in ("place", "regroup"):
        _index(found, _GROUP, indexed)
    if found is None or not found.has_table(_ALIAS):
        op.create_table(
            _ALIAS,
            sa.Column("name", name(64), nullable=False),
            sa.Column("fingerprint", name(64), nullable=False),
            sa.Column("why", name(), nullable=False),
            sa.Column("who", name(), nullable=False),
            sa.Column("at", Moment, nullable=False),
            sa.PrimaryKeyConstraint("name", name=f"pk_{_ALIAS}"),
            **_OPTIONS,
        )
    _index(found, _ALIAS, "fingerprint")


def _index(found: sa.Inspector | None, table: str, column: str) -> None:
    index = f"ix_{table}_{column}"
    known = [] if found is None or not found.has_table(table) else found.get_indexes(table)
    if index not in {one["name"] for one in known}:
        op.create_index(index, table, [column])
