"""What is large of a letter is in a table of its own."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import BIG_ID, BYTES, LONG_TEXT, Moment, name

revision = "0010"
down_revision = "0009"

_LETTER, _CONTENT = "celery_dead_letter", "celery_dead_letter_content"

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}

_MOVED = ("headers", "properties", "body", "args", "kwargs", "traceback")

# Workers of the release before may be at work: what they save after the copy began would go with the columns.
# SQLite has one writer in any case. MySQL lets who holds such locks use no other table, and lets them go at
# the end of the session only, or when told so.
_LOCK = {
    "postgresql": f"LOCK TABLE {_LETTER} IN ACCESS EXCLUSIVE MODE",
    "mysql": f"LOCK TABLES {_LETTER} WRITE, {_CONTENT} WRITE",
}
_UNLOCK = {"mysql": "UNLOCK TABLES"}


def upgrade() -> None:
    # MySQL commits each step at once, and an earlier upgrade may have been cut off after any of them. What
    # the SQL that is printed will find is not known.
    found = None if op.get_context().as_sql else sa.inspect(op.get_bind())
    if found is None or not found.has_table(_CONTENT):
        _create_content()
    if found is None or "body" in {column["name"] for column in found.get_columns(_LETTER)}:
        with _locked():
            _move()


def _create_content() -> None:
    op.create_table(
        _CONTENT,
        sa.Column("id", BIG_ID, nullable=False, autoincrement=False),
        *(
            sa.Column(column, BYTES if column == "body" else LONG_TEXT, nullable=False)
            for column in _MOVED
        ),
        sa.PrimaryKeyConstraint("id", name="pk_celery_dead_letter_content"),
        **_OPTIONS,
    )


@contextmanager
def _locked() -> Iterator[None]:
    """No other connection reads or writes letters."""
    dialect = op.get_context().dialect.name
    if dialect in _LOCK:
        op.execute(_LOCK[dialect])
    try:
        yield
    except BaseException:
        # A connection that broke has no locks any more, and would now say something else than why.
        with suppress(sa.exc.SQLAlchemyError):
            _unlock(dialect)
        raise
    _unlock(dialect)


def _unlock(dialect: str) -> None:
    if dialect in _UNLOCK:
        op.execute(_UNLOCK[dialect])


def _move() -> None:
    dialect = op.get_context().dialect.name
    # What was copied before an upgrade was cut off is out of date where a letter has changed since.
    verb = "REPLACE" if dialect == "mysql" else "INSERT"
    columns = ", ".join(("id", *_MOVED))
    op.execute(f"{verb} INTO {_CONTENT} ({columns}) SELECT {columns} FROM {_LETTER}")
    if dialect == "sqlite":
        _drop_on_sqlite()
    else:
        op.execute(f"ALTER TABLE {_LETTER} " + ", ".join(f"DROP COLUMN {column}" for column in _MOVED))


def _drop_on_sqlite() -> None:
    # Older releases of it drop no columns, and newer ones write the table anew for each.
    op.create_table(
        f"{_LETTER}_new",
        sa.Column("id", BIG_ID, nullable=False),
        *_kept(),
        sa.PrimaryKeyConstraint("id", name="pk_celery_dead_letter"),
        sa.UniqueConstraint("task_id", name="uq_celery_dead_letter_task_id"),
    )
    columns = ", ".join(("id", *(column.name for column in _kept())))
    op.execute(f"INSERT INTO {_LETTER}_new ({columns}) SELECT {columns} FROM {_LETTER}")
    op.drop_table(_LETTER)
    op.rename_table(f"{_LETTER}_new", _LETTER)
    op.create_index(
        "ix_celery_dead_letter_state", _LETTER, ["state", "last_failed_at", "id", "reason"]
    )
    for column in ("task", "exception_type", "fingerprint", "queue"):
        op.create_index(
            f"ix_{_LETTER}_{column}", _LETTER, [column, "state", "last_failed_at", "id"]
        )


def _kept() -> list[sa.Column[Any]]:
    return [
        sa.Column("task_id", name(), nullable=False),
        sa.Column("task", name(), nullable=False),
        sa.Column("state", name(16), nullable=False),
        sa.Column("reason", name(16), nullable=False),
        sa.Column("verdict", name(16), nullable=False),
        sa.Column("rule", name(), nullable=False),
        sa.Column("evidence", LONG_TEXT, nullable=False),
        sa.Column("path", LONG_TEXT, nullable=False),
        sa.Column("exception_type", name(), nullable=False),
        sa.Column("message", LONG_TEXT, nullable=False),
        sa.Column("fingerprint", name(64), nullable=False),
        sa.Column("first_failed_at", Moment, nullable=False),
        sa.Column("last_failed_at", Moment, nullable=False),
        sa.Column("last_redrive", sa.Integer, nullable=False),
        sa.Column("redrive_count", sa.Integer, nullable=False),
        sa.Column("attempt_count", sa.Integer, nullable=False),
        sa.Column("worker", name(), nullable=False),
        sa.Column("pid", sa.BigInteger),
        sa.Column("release", name(), nullable=False),
        sa.Column("root_id", name()),
        sa.Column("parent_id", name()),
        sa.Column("group_id", name()),
        sa.Column("correlation_id", name()),
        sa.Column("canvas", name(16), nullable=False),
        sa.Column("tags", LONG_TEXT, nullable=False),
        sa.Column("content_type", name(), nullable=False),
        sa.Column("content_encoding", name(), nullable=False),
        sa.Column("exchange", name(), nullable=False),
        sa.Column("routing_key", name(), nullable=False),
        sa.Column("queue", name(), nullable=False),
        sa.Column("claim_token", name(64)),
        sa.Column("lease_expires_at", Moment),
        sa.Column("closed_at", Moment),
        sa.Column("closed_by", name(), nullable=False),
        sa.Column("closed_reason", LONG_TEXT, nullable=False),
    ]
