"""Commands for whoever runs the store: its schema, and a check-up."""

from __future__ import annotations

from typing import Any

import click

from celery_dlq.cli.doctor import examine
from celery_dlq.cli.exits import FAILED, STORE
from celery_dlq.cli.findings import Level
from celery_dlq.cli.render import Column, Table
from celery_dlq.cli.session import Session


@click.group("db")
def db() -> None:
    """Create or upgrade the store's schema."""


@db.command("upgrade")
@click.pass_obj
def upgrade(cli: Any) -> None:
    """Bring the schema to what this release needs.

    Safe to run again, and from several places at once.
    """
    from celery_dlq.store import schema

    database = _database(cli)
    before = schema.upgrade(database)
    if before == schema.HEAD:
        cli.echo(f"The schema is at {schema.HEAD} already.")
    else:
        cli.echo(f"Upgraded the schema from {before or 'nothing'} to {schema.HEAD}.")


@db.command("current")
@click.pass_context
def current(ctx: click.Context) -> None:
    """Say which schema is there, and which one this release needs.

    Exit status 3 when they differ.
    """
    from celery_dlq.store import schema

    found = _database(ctx.obj).read(schema.current)
    ctx.obj.echo(f"{found or 'none'}; this release needs {schema.HEAD}")
    if found != schema.HEAD:
        ctx.obj.error(f"Run: {Session(ctx.obj).command('db', 'upgrade')}")
        ctx.exit(STORE)


@db.command("sql")
@click.option("--from", "since", metavar="VERSION", help="The schema that is there. Default: none.")
@click.pass_obj
def sql(cli: Any, since: str | None) -> None:
    """Print the SQL of an upgrade, to be run by hand. Nothing is connected."""
    from celery_dlq.store import schema

    cli.echo(schema.upgrade_sql(_database(cli), since))


def _database(cli: Any) -> Any:
    from celery_dlq.store.sql import SQLStore

    # Not the queue's own store: that refuses a schema that does not fit.
    return SQLStore.from_settings(Session(cli).queue.settings).database


@click.command("doctor")
@click.pass_context
def doctor(ctx: click.Context) -> None:
    """Check the set-up and say what to do.

    Looks at settings, store, spool, broker and tasks. Exit status 1 when something is wrong.
    """
    session = Session(ctx.obj)
    found = list(examine(session))
    rows = [(item.check, item.level.value, item.text) for item in found]
    columns = (Column("CHECK", rigid=True), Column("RESULT", rigid=True), Column("", fold=True))
    session.screen.show(Table(columns, rows))
    if any(item.level is Level.ERROR for item in found):
        ctx.exit(FAILED)
