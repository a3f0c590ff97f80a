"""Claims as rows of their own: what is claimed now is given back, as if its lease had ended. The home of
operations, the subjects of acts, and indexes by which history is pruned."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from celery_dlq.store.database.columns import Moment, name

revision = "0009"
down_revision = "0008"

_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}

_GIVE_BACK = """
UPDATE celery_dead_letter SET
    state = COALESCE(
        (SELECT MAX(was) FROM celery_dead_letter_redrive
         WHERE celery_dead_letter_redrive.task_id = celery_dead_letter.task_id
         AND celery_dead_letter_redrive.copy = celery_dead_letter.claim_token),
        'dead'),
    claim_token = NULL,
    lease_expires_at = NULL
WHERE state = 'claimed'
"""


# As the rows say it: {"operation":"0d3f..." and {"letter":"..."}.
_SUBJECTS = (
    """UPDATE celery_dlq_audit SET subject = SUBSTR(detail, 15, 12)
    WHERE SUBSTR(detail, 1, 14) = '{"operation":"'""",
    """UPDATE celery_dlq_audit SET subject = SUBSTR(detail, 12, LENGTH(detail) - 13)
    WHERE SUBSTR(detail, 1, 11) = '{"letter":"' AND act = 'edit'""",
)


def upgrade() -> None:
    _create_claim()
    for column in ("app", "broker"):
        op.add_column(
            "celery_dlq_operation", sa.Column(column, name(), nullable=False, server_default="")
        )
    op.add_column(
        "celery_dlq_audit", sa.Column("subject", name(), nullable=False, server_default="")
    )
    for statement in _SUBJECTS:
        op.execute(statement)
    op.create_index("ix_celery_dlq_audit_subject", "celery_dlq_audit", ["subject", "id"])
    for table, column in (
        ("celery_dlq_audit", "at"),
        ("celery_dlq_operation", "ended_at"),
        ("celery_dead_letter_change", "at"),
    ):
        op.create_index(f"ix_{table}_{column}", table, [column])


def _create_claim() -> None:
    op.create_table(
        "celery_dlq_claim",
        sa.Column("token", name(64), nullable=False),
        sa.Column("operation", name(32), nullable=False),
        sa.Column("letters", sa.Integer, nullable=False),
        sa.Column("lease_expires_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("token", name="pk_celery_dlq_claim"),
        **_OPTIONS,
    )
    op.execute(_GIVE_BACK)
