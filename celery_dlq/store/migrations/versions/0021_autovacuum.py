"""PostgreSQL cleans up and analyses the large tables after one row in a hundred has changed. Its default is one
in five, which is two million of ten million letters: until then, pages that an index could answer are read from
the table, and counts take ten times as long."""

from alembic import op

revision = "0021"
down_revision = "0020"

_TABLES = (
    "celery_dead_letter",
    "celery_dead_letter_content",
    "celery_dead_letter_attempt",
    "celery_dead_letter_term",
    "celery_dead_letter_redrive",
    "celery_dlq_delivery",
)
_OPTIONS = ", ".join(
    f"autovacuum_{what}_scale_factor = 0.01" for what in ("vacuum", "vacuum_insert", "analyze")
)


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        for table in _TABLES:
            op.execute(f"ALTER TABLE {table} SET ({_OPTIONS})")
