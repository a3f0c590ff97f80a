"""The errors that the store raises instead of a database's own: one line, without SQL, values or password."""

from __future__ import annotations

from typing import Any

from sqlalchemy import exc
from sqlalchemy.engine import URL

from celery_dlq.errors import RecordRefused, SchemaError, StoreUnavailable
from celery_dlq.store.database.servers import hosts_of

#: The next step when the schema does not fit.
UPGRADE = "run: celery -A <app> dlq db upgrade"


def address(url: URL) -> str:
    """``url`` as people write it, without its password."""
    hosts = ",".join(hosts_of(url))
    if not hosts:
        return url.render_as_string(hide_password=True)
    # SQLAlchemy takes a host with a colon for an IPv6 address.
    listed = url.difference_update_query(["host"]).set(host=hosts)
    return listed.render_as_string(hide_password=True).replace(f"[{hosts}]", hosts)


def driver_args(error: exc.DBAPIError) -> tuple[Any, ...]:
    """The arguments of the driver's exception."""
    return error.orig.args if error.orig is not None else ()


def said(error: exc.DBAPIError, url: URL) -> str:
    """The first line of the driver's message."""
    args = driver_args(error)
    text = str(args[1] if len(args) > 1 else error.orig).strip().partition("\n")[0]
    # Drivers may quote the connection string.
    return text.replace(str(url.password), "***") if url.password else text


def refusal(url: URL, reason: str) -> str:
    """The text if it is only known that the database refused."""
    return (
        f"The dead-letter store at {address(url)} refused ({reason}); "
        "run: celery -A <app> dlq doctor"
    )


def schema_error(reason: str) -> SchemaError:
    """The error for a missing table or column."""
    return SchemaError(f"The schema of the dead-letter store does not fit ({reason}); {UPGRADE}")


def before_the_database(error: exc.SQLAlchemyError, url: URL) -> StoreUnavailable | RecordRefused:
    """The error for an ``error`` that did not come from the database: no connection was free, or a value
    could not be sent."""
    if isinstance(error, exc.TimeoutError):
        return StoreUnavailable(
            f"The dead-letter store at {address(url)} has no connection free; try again."
        )
    cause = error.orig if isinstance(error, exc.StatementError) else error
    return RecordRefused(refusal(url, str(cause).partition("\n")[0]))
