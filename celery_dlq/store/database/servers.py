"""The servers of a URL, and the pooler before them.

A URL may list several servers, such as ``postgresql://user:password@db1:5432,db2:5432/shop``: the first that
accepts writes is used. After a failover, the next connection finds the new one.

PostgreSQL greets a client with the number of the process that serves it. PgBouncer, and others that give a
server connection to many clients, greet with a number of their own. PgPool-II passes the server's number on,
but answers questions that PostgreSQL does not understand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import URL, Engine

#: Scheme, user and password, the servers, and the rest of a URL with a list of servers.
_LIST = re.compile(
    r"([^:/?#]+://)((?:[^/?#]*@)?)([^/?#@]*,[^/?#@]*)((?:/[^?]*)?)((?:\?.*)?)", re.DOTALL
)
_HOST = re.compile(r"[^:\s]+(?::\d{1,5})?")


def with_hosts_apart(text: str) -> str:
    """``text`` in SQLAlchemy's form, with each server of a list as a ``host`` of the query.

    :raises ValueError: a server of the list is empty, or not a name and a port.
    """
    found = _LIST.fullmatch(text)
    if found is None:
        return text
    scheme, user, hosts, path, rest = found.groups()
    if not all(_HOST.fullmatch(host) for host in hosts.split(",")):
        raise ValueError("a server of the list is not a name and a port")
    query = "&".join(f"host={host}" for host in hosts.split(","))
    return f"{scheme}{user}{path or '/'}?{query}{'&' if rest else ''}{rest.removeprefix('?')}"


def hosts_of(url: URL) -> Sequence[str]:
    """The servers of a URL that lists several, each as ``name`` or ``name:port``; empty for any other URL."""
    hosts = url.query.get("host", ())
    return () if isinstance(hosts, str) else hosts


def address(url: URL) -> str:
    """``url`` as people write it, without its password."""
    hosts = ",".join(hosts_of(url))
    if not hosts:
        return url.render_as_string(hide_password=True)
    # SQLAlchemy takes a host with a colon for an IPv6 address.
    listed = url.difference_update_query(["host"]).set(host=hosts)
    return listed.render_as_string(hide_password=True).replace(f"[{hosts}]", hosts)


def alone(url: URL, host: str) -> URL:
    """The URL of one of the servers, whether or not it accepts writes."""
    name, port = _name_and_port(host)
    others = url.difference_update_query(["host", "target_session_attrs"])
    return others.set(host=name, port=port)


def _name_and_port(host: str) -> tuple[str, int | None]:
    name, _, port = host.partition(":")
    return name, int(port) if port else None


def try_in_turn(engine: Engine, hosts: Sequence[str]) -> None:
    """Let each new connection of ``engine`` lead to the first of ``hosts`` that accepts writes. The drivers
    of MySQL cannot do this themselves."""

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, _record: object, args: Sequence[Any], given: dict[str, Any]) -> Any:
        errors: list[Exception] = []
        for host in hosts:
            name, port = _name_and_port(host)
            server = {"host": name} if port is None else {"host": name, "port": port}
            try:
                return _connect(dialect, args, {**given, **server})
            except dialect.dbapi.Error as error:
                errors.append(error)
        raise errors[-1]


def _connect(dialect: Any, args: Sequence[Any], given: dict[str, Any]) -> Any:
    connection = dialect.connect(*args, **given)
    try:
        _check_that_it_writes(dialect.dbapi, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_that_it_writes(driver: Any, connection: Any) -> None:
    if why := why_read_only(connection):
        raise driver.OperationalError(1290, f"the server {why}")


def why_read_only(connection: Any) -> str:
    """Why the server of a driver's connection accepts no writes, as the end of a sentence; empty if it
    does."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@global.read_only")
        [is_read_only] = cursor.fetchone()
        # A node that has left its Galera cluster still answers such questions. Servers that can have Galera,
        # and do not, are not "ready" either.
        cursor.execute("SHOW GLOBAL VARIABLES LIKE 'wsrep_on'")
        if cursor.fetchone() == ("wsrep_on", "ON"):
            cursor.execute("SHOW STATUS LIKE 'wsrep_ready'")
            if cursor.fetchone() != ("wsrep_ready", "ON"):
                return "is not part of its Galera cluster"
    return "runs with read_only" if is_read_only else ""


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
