"""An index of the letters of a canvas; and the columns of letters by which parked retries are filtered."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

from celery_dlq.codec import dump_json
from celery_dlq.redact import safe_text
from celery_dlq.store.database.columns import BIG_ID, BYTES, LONG_TEXT, name

revision = "0019"
down_revision = "0018"

_LETTER, _PARKED = "celery_dead_letter", "celery_dlq_parked"
_INDEX = f"ix_{_LETTER}_root_id"

#: Retries that are read at once.
_STEP = 500


def upgrade() -> None:
    # As in 0013: on MySQL, an earlier upgrade may have been cut off between these steps. The index comes first
    # because it takes longest, and workers cannot park retries while the other table is changed.
    found = None if op.get_context().as_sql else sa.inspect(op.get_bind())
    if found is None or _INDEX not in {item["name"] for item in found.get_indexes(_LETTER)}:
        op.create_index(_INDEX, _LETTER, ["root_id", "state", "last_failed_at", "id"])
    there = set() if found is None else {item["name"] for item in found.get_columns(_PARKED)}
    for column in _columns():
        if column.name not in there:
            op.add_column(_PARKED, column)
    if found is not None:
        # Printed SQL leaves the columns of retries that wait already empty: their records cannot be read in
        # the same way by all databases.
        _fill()


def _columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("release", name()),
        sa.Column("root_id", name()),
        sa.Column("tags", LONG_TEXT),
        sa.Column("verdict", name(16)),
        sa.Column("rule", name()),
    ]


def _fill() -> None:
    """Fill the columns of the retries that wait."""
    parked = sa.table(
        _PARKED, sa.column("id", BIG_ID), sa.column("state", sa.String), sa.column("record", BYTES),
        *(sa.column(column.name, column.type) for column in _columns()),
    )  # fmt: skip
    waiting = sa.select(parked.c.id, parked.c.record).where(
        parked.c.state == "parked", parked.c.rule.is_(None)
    )
    connection, last = op.get_bind(), 0
    while rows := _next(connection, waiting, parked.c.id, last):
        last = rows[-1].id
        for row in rows:
            values = _values(json.loads(row.record))
            connection.execute(sa.update(parked).where(parked.c.id == row.id).values(values))


def _next(
    connection: sa.Connection, waiting: Any, number: sa.ColumnClause[int], last: int
) -> list[Any]:
    return list(connection.execute(waiting.where(number > last).order_by(number).limit(_STEP)))


def _values(record: dict[str, Any]) -> dict[str, Any]:
    explanation, root = record["explanation"], record["root_id"]
    return {
        "release": _fit(record["release"]),
        "root_id": None if root is None else _fit(root),
        "tags": dump_json(record["tags"]),
        "verdict": explanation["verdict"],
        "rule": _fit(explanation["rule"]),
    }


def _fit(text: str) -> str:
    return safe_text(text)[:255].rstrip(" ")
