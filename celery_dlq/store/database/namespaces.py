"""The namespaces that a process sees: several teams may share one store, and each app has its own rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from celery_dlq.settings import own
from celery_dlq.store.database.columns import name

#: The tables that have a row for each namespace with letters or parked retries. They import this module.
_OF_ALL = [
    sa.table(table, sa.column("namespace"))
    for table in ("celery_dead_letter_count", "celery_dlq_parked")
]

#: The option of a connection with the names that its process sees; None for all.
SEEN = "celery_dlq_namespaces"


def seen(connection: Connection) -> Sequence[str]:
    """The namespaces whose rows this transaction reads. If a process sees all, these are the namespaces that
    have letters or parked retries now."""
    names = connection.get_execution_options().get(SEEN, ("",))
    if names is None:
        known = sa.union(*(sa.select(table.c.namespace) for table in _OF_ALL))
        names = sorted({"", *connection.scalars(known)})
        connection.execution_options(**{SEEN: names})
    return list(names)


def is_ours(connection: Connection, table: Any, only: str | None = None) -> sa.ColumnElement[bool]:
    """Whether a row of ``table`` is of a namespace that this process sees.

    :param only: of this one of them.
    """
    names = [one for one in seen(connection) if only in (None, one)]
    column: sa.ColumnElement[str] = table.c.namespace
    return column == names[0] if len(names) == 1 else column.in_(names)


def narrow(connection: Connection, namespace: str) -> None:
    """See only this namespace until the transaction ends, and write into it."""
    connection.execution_options(**{SEEN: (namespace,)})


def column() -> sa.Column[str]:
    """The column of the namespace. A new row gets the only one that its transaction sees."""
    options: dict[str, Any] = {"server_default": "", "default": _of_transaction}
    return sa.Column("namespace", name(64), nullable=False, **options)


def _of_transaction(context: Any) -> str:
    return own(context.execution_options.get(SEEN, ("",)))
