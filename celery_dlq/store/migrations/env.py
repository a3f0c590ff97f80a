"""Run by Alembic: migrates over the connection it is given, or writes SQL if there is none."""

from typing import Any

from alembic import context

from celery_dlq.store.database import tables

attributes: dict[str, Any] = context.config.attributes
options: dict[str, Any] = {
    "target_metadata": tables.metadata,
    "version_table": tables.VERSION_TABLE,
}

if context.is_offline_mode():
    context.configure(
        dialect_name=attributes["dialect"].name,
        output_buffer=attributes["buffer"],
        literal_binds=True,
        # Alembic would write no BEGIN for SQLite.
        transactional_ddl=attributes["dialect"].undoes_ddl,
        **options,
    )
else:
    context.configure(connection=attributes["connection"], **options)

with context.begin_transaction():
    context.run_migrations()
