"""The servers of a URL.

A URL may list several servers, such as ``postgresql://user:password@db1:5432,db2:5432/shop``: the first that
accepts writes is used. After a failover, the next connection finds the new one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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
