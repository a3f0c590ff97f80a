"""The tables of a new database, with their indexes, as the package knows them today.

A new database gets all of them at once, so no later migration runs on it: see ``schema.py``. A database of an
earlier release never runs this one.
"""

from collections.abc import Container

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import CreateIndex, CreateTable

from celery_dlq.store.database import tables

revision = "0025"
down_revision = None

#: PostgreSQL cleans up and analyses these large tables after one row in a hundred has changed. Its default is
#: one in five, which is two million of ten million letters: until then, pages that an index could answer are
#: read from the table, and counts take ten times as long.
_LARGE = (
    tables.letter, tables.content, tables.attempt, tables.term, tables.sending, tables.delivery,
)  # fmt: skip
_AUTOVACUUM = ", ".join(
    f"autovacuum_{what}_scale_factor = 0.01" for what in ("vacuum", "vacuum_insert", "analyze")
)


def upgrade() -> None:
    for table in tables.metadata.sorted_tables:
        found = _found_indexes(table.name)
        if found is None:
            op.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda one: str(one.name)):
            if index.name not in (found or ()):
                op.execute(CreateIndex(index))
    if op.get_context().dialect.name == "postgresql":
        for table in _LARGE:
            op.execute(f"ALTER TABLE {table.name} SET ({_AUTOVACUUM})")


def _found_indexes(table: str) -> Container[str | None] | None:
    """The names of the table's indexes; None if it does not exist, as printed SQL assumes. MySQL commits each
    step at once, and an earlier upgrade may have been interrupted between them. Other databases undo an
    interrupted upgrade, so that a table which exists there is an error."""
    context = op.get_context()
    if context.as_sql or context.dialect.name != "mysql":
        return None
    found = sa.inspect(op.get_bind())
    return {item["name"] for item in found.get_indexes(table)} if found.has_table(table) else None
