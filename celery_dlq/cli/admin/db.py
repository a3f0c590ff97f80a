"""``dlq db`` manages the schema of the store."""

from __future__ import annotations

from typing import Any

import click

from celery_dlq.base.known import unknown_name
from celery_dlq.cli.exits import STORE, NamingGroup, leave
from celery_dlq.cli.session import Session, pass_session


@click.group("db", cls=NamingGroup, alone="current")
def db() -> None:
    """Create, upgrade and inspect the store's schema."""


@db.command("upgrade")
@pass_session
def upgrade(session: Session) -> None:
    """Upgrade the schema to this release.

    Safe to repeat, and to run in several places at once.
    """
    from celery_dlq.store.database import schema

    database = _database(session)
    before = schema.upgrade(database)
    if before == schema.HEAD:
        session.cli.echo(f"The schema is already at {schema.HEAD}.")
    else:
        session.cli.echo(f"Upgraded the schema from {before or 'nothing'} to {schema.HEAD}.")


@db.command("current")
@pass_session
def current(session: Session) -> None:
    """Show the version of the schema, and the one this release needs.

    Exits with 3 if they differ.
    """
    from celery_dlq.store.database import schema

    found = _database(session).read(schema.current)
    session.cli.echo(f"{found or 'none'}; this release needs {schema.HEAD}")
    schema.refuse_unreleased(found)
    if found != schema.HEAD:
        upgraded = session.command("db", "upgrade")
        is_newer = found is not None and found > schema.HEAD
        session.error(f"Run: {'pip install --upgrade celery-dlq' if is_newer else upgraded}")
        leave(STORE)


@db.command("sql")
@click.option(
    "--from",
    "since",
    metavar="VERSION",
    help="Version to upgrade from. Default: an empty database.",
)
@pass_session
def sql(session: Session, since: str | None) -> None:
    """Print the SQL of an upgrade, to run by hand. Does not connect to the database."""
    from celery_dlq.store.database import schema

    database = _database(session)
    schema.refuse_unreleased(since)
    if since is not None and since not in (known := schema.versions()):
        raise click.BadParameter(
            unknown_name("a schema version of this release", since, known), param_hint="'--from'"
        )
    session.cli.echo(schema.upgrade_sql(database, since))


def _database(session: Session) -> Any:
    from celery_dlq.store.sql import SQLStore

    queue = session.queue
    # The queue's own store would refuse a schema that does not fit.
    return SQLStore.from_settings(queue.settings, client=queue.client).database
