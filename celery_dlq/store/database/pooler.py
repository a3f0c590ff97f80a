"""The pooler between a client and PostgreSQL, such as PgBouncer or PgPool-II, and what it does to the store.

PostgreSQL greets a client with the number of the process that serves it. PgBouncer, and others that give a
server connection to many clients, greet with a number of their own. PgPool-II passes the server's number on,
but answers questions that PostgreSQL does not understand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_PGPOOL = "PgPool-II"

#: The settings of PgPool-II that choose a server by a name, those that count more first.
_BY_APPLICATION = "app_name_redirect_preference_list"
_BY_DATABASE = "database_redirect_preference_list"
_BY_USER = "user_redirect_preference_list"

#: The roles of a server that has all changes.
_PRIMARY = frozenset({"primary", "main"})


@dataclass(frozen=True)
class Pooler:
    """A pooler that stands between this process and PostgreSQL."""

    #: Empty if it does not say it.
    name: str = ""
    version: str = ""
    #: Why it refuses transactions; empty if it accepts them.
    refuses: str = ""
    #: Whether it may send queries of the store to a standby.
    balances: bool = False
    #: Whether it may answer queries from a cache.
    caches: bool = False


def find_pooler(connection: Any, names: Sequence[str]) -> Pooler | None:
    """The pooler behind a driver's ``connection``; None if there is none, or if it cannot be found.

    :param connection: a connection of psycopg that has begun no transaction. It may be closed afterwards.
    :param names: the names that the store's connections have on the server.
    """
    mode = _setting(connection, "load_balance_mode")
    if mode is not None:
        return Pooler(
            name=_PGPOOL,
            version=_version(connection),
            balances=mode == "on" and _balances(connection, names),
            caches=_setting(connection, "memory_cache_enabled") == "on",
        )
    served_by = _ask(connection, "SELECT pg_backend_pid() AS pid")
    if not served_by or served_by[-1]["pid"] == connection.info.backend_pid:
        return None
    return Pooler(refuses=_why_no_transaction(connection))


def _why_no_transaction(connection: Any) -> str:
    # In statement mode, PgBouncer refuses this, and closes the connection.
    try:
        connection.execute("BEGIN")
        connection.execute("ROLLBACK")
    except connection.Error as error:
        return str(error).strip().partition("\n")[0]
    return ""


def _version(connection: Any) -> str:
    rows = _ask(connection, "SHOW pool_version")
    return str(rows[-1]["pool_version"]).partition(" ")[0] if rows else ""


def _balances(connection: Any, names: Sequence[str]) -> bool:
    if _setting(connection, "backend_clustering_mode") == "raw" or not _has_standby(connection):
        return False
    lists = {of: _setting(connection, of) or "" for of in (_BY_APPLICATION, _BY_DATABASE, _BY_USER)}
    user, database = connection.info.user, connection.info.dbname
    return not all(_is_kept(lists, name, database, user) for name in names)


def _has_standby(connection: Any) -> bool:
    """Whether another server than the primary gets queries; also if PgPool-II does not list its servers."""
    nodes = _ask(connection, "SHOW pool_nodes")
    if not nodes:
        return True
    asked = [node["role"] for node in nodes if float(node["lb_weight"])]
    if not any(node["role"] in _PRIMARY for node in nodes):
        # Soon after its start, PgPool-II does not know yet which server is the primary.
        return len(asked) > 1
    return any(role not in _PRIMARY for role in asked)


def _is_kept(lists: Mapping[str, str], name: str, database: str, user: str) -> bool:
    """Whether all queries of this connection go to the primary. The first list that knows it decides."""
    chosen = (
        _chosen(lists[of], subject)
        for of, subject in ((_BY_APPLICATION, name), (_BY_DATABASE, database), (_BY_USER, user))
    )
    return next(filter(None, chosen), "") in ("primary", "primary(1.0)", "primary(1)")


def _chosen(preferences: str, subject: str) -> str:
    """The server, perhaps with its share, of the first preference that matches; empty if none does."""
    for preference in preferences.split(","):
        pattern, _, server = preference.partition(":")
        if pattern and _matches(pattern, subject):
            return server.strip()
    return ""


def _matches(pattern: str, subject: str) -> bool:
    """As PgPool-II matches, which knows only whole names."""
    try:
        return re.search(f"^{pattern}$", subject, re.IGNORECASE) is not None
    except re.error:
        return False


def _setting(connection: Any, name: str) -> str | None:
    """The value of a setting of PgPool-II; None from anything else, and if it has no such setting."""
    rows = _ask(connection, f"PGPOOL SHOW {name}")
    return str(rows[-1][name]) if rows else None


def _ask(connection: Any, question: str) -> list[Mapping[str, Any]]:
    """The rows of the answer, by column; none if the question is refused."""
    try:
        cursor = connection.execute(question)
        return [row for rows in _results(cursor) for row in rows]
    except connection.Error:
        return []


def _results(cursor: Any) -> Iterable[list[Mapping[str, Any]]]:
    # PgPool-II 4.3 answers the question for its version with an empty result, and then with the version.
    while True:
        columns = [column.name for column in cursor.description or ()]
        yield [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
        if not cursor.nextset():
            return
