"""What the schemas from 0019 on have added."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import inspect, text

from celery_dlq.store.database import tables
from celery_dlq.store.sql import SQLStore

INDEX = f"ix_{tables.letter.name}_root_id"

#: The columns of parked retries, in the order of the upgrade.
COLUMNS = ("release", "root_id", "tags", "verdict", "rule")

#: The columns of schema 0022, each with its table, in the order of the upgrade.
SHARED = (
    (tables.operation, "allotted"), (tables.operation, "paced_from"), (tables.claim, "holder"),
    (tables.claim, "reserved"),
)  # fmt: skip


#: The columns of schema 0024, each with its table.
GROUPING = (
    (tables.letter, "raw_fingerprint"), (tables.content, "grounds"), (tables.group, "place"),
    (tables.group, "regroup"), (tables.group, "regrouped_to"),
)  # fmt: skip


def remove(store: SQLStore, columns: Sequence[str] = COLUMNS, *, index: bool = True) -> None:
    """Remove the index, and columns of parked retries; the table of values; and the columns of shared
    operations."""
    quoted = store.database.engine.dialect.identifier_preparer.quote
    on = f" ON {tables.letter.name}" if store.database.dialect.name == "mysql" else ""
    statements = [f"DROP TABLE {tables.term.name}"]
    statements += [f"DROP INDEX {INDEX}{on}"] if index else []
    statements += [
        f"ALTER TABLE {tables.parked.name} DROP COLUMN {quoted(column)}" for column in columns
    ]
    _run(store, statements)
    remove_shared(store)


def remove_shared(store: SQLStore) -> None:
    """Remove the columns of operations that several processes carry, and the table of saved filters."""
    _run(store, [f"ALTER TABLE {table.name} DROP COLUMN {column}" for table, column in SHARED])
    remove_saved_filters(store)


def remove_saved_filters(store: SQLStore) -> None:
    """Remove the table of schema 0023, and what 0024 has added."""
    on = f" ON {tables.group.name}" if store.database.dialect.name == "mysql" else ""
    quoted = store.database.engine.dialect.identifier_preparer.quote
    if store.database.read(lambda one: inspect(one).has_table(tables.alias.name)):
        indexes = [f"ix_{tables.group.name}_{name}" for name in ("place", "regroup")]
        _run(store, [f"DROP INDEX {name}{on}" for name in indexes])
        _run(
            store,
            [
                f"ALTER TABLE {table.name} DROP COLUMN {quoted(column)}"
                for table, column in GROUPING
            ],
        )
        _run(store, [f"DROP TABLE {tables.alias.name}"])
    _run(store, [f"DROP TABLE IF EXISTS {tables.saved_filter.name}"])


def _run(store: SQLStore, statements: Sequence[str]) -> None:
    for statement in statements:
        store.database.write(lambda one, said=statement: one.execute(text(said)))
