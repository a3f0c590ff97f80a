"""``dlq drill``: shows that nothing is lost on this broker and store, with this configuration."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from celery import __version__ as CELERY

from celery_dlq import __version__ as VERSION
from celery_dlq.base.addresses import broker_of
from celery_dlq.cli.doctor import Level, app, broker, storage
from celery_dlq.cli.doctor.command import examine
from celery_dlq.cli.exits import FAILED, for_app, leave
from celery_dlq.cli.options import Word, format_option
from celery_dlq.cli.screens.parts import Column, Table
from celery_dlq.cli.session import Session, pass_session
from celery_dlq.drill.scenarios import SCENARIOS
from celery_dlq.errors import DrillError
from celery_dlq.view.text import counted

if TYPE_CHECKING:
    from celery_dlq.drill.account import Account

#: Without these, no drill can begin.
_NEEDED = (
    ("settings", app.check_settings),
    ("store", storage.check_store_url),
    ("broker", broker.check_broker),
)

#: The checks that name what the configuration leaves open.
_OPEN = (
    ("spool", storage.check_spool),
    ("capture", app.check_capture),
    ("acks", broker.check_acks),
    ("taking", broker.check_taking),
)


@click.command("drill")
@click.option(
    "--only", multiple=True, type=Word("a scenario", SCENARIOS), metavar="SCENARIO",
    help=f"Run this one; may be repeated. One of: {', '.join(SCENARIOS)}.",
)  # fmt: skip
# For -P or --pool, Celery would also prepare this process for gevent.
@click.option(
    "--worker-pool", "pool", metavar="POOL",
    help="Pool of the worker. Default: worker_pool of the configuration.",
)  # fmt: skip
@click.option(
    "--store-url", metavar="URL",
    help="Empty database for the drill, if the user of the store may not create one.",
)  # fmt: skip
@format_option
@pass_session
def drill(
    session: Session, only: tuple[str, ...], pool: str | None, store_url: str | None, form: str
) -> None:
    """Show that nothing is lost here, on messages of its own.

    Starts a worker of your app, with its broker, database and settings, but with a queue and tables of its
    own; sends messages, kills processes and cuts connections; and says how each message ended. It touches no
    other queue, letter or worker, and removes everything at the end. Exits with 1 if there is a gap.
    """
    from celery_dlq.drill.account import Result
    from celery_dlq.drill.run import drill as run

    queue = session.queue
    if not session.app_name:
        raise DrillError(
            "The drill starts workers of your app; name it: celery -A <app> dlq drill."
        )
    for _, finding in examine(session, _NEEDED):
        if finding.level is Level.ERROR:
            raise DrillError(finding.text)
    if form == "table":
        session.screen.show(_tested(session, only, pool))
    found = run(
        session.cli.app, session.app_name, queue.settings, only=only, pool=pool, store_url=store_url,
        on_account=lambda account: session.say(f"{account.scenario}: {account.result.value}"),
    )  # fmt: skip
    found += _left_open(session)
    columns = (
        Column("SCENARIO", rigid=True), Column("RESULT", rigid=True),
        Column("SECONDS", right=True, rigid=True), Column("", fold=True),
    )  # fmt: skip
    rows = [
        (one.scenario, one.result.value, f"{one.seconds:g}", f"{one.title}: {for_app(one.text)}")
        for one in found
    ]
    sent, known = sum(one.sent for one in found), sum(one.done + one.letters for one in found)
    session.screen.emit(
        form, [*map(asdict, found)], Table(columns, rows), f"{sent} sent, {known} accounted for"
    )
    if any(account.result is Result.GAP for account in found):
        leave(FAILED)


def _tested(session: Session, only: tuple[str, ...], pool: str | None) -> str:
    app, store = session.cli.app, session.queue.check_store_url()
    sends = [one.sends for name, one in SCENARIOS.items() if not only or name in only]
    return (
        f"Tests {broker_of(app.connection_for_write())} and {store} with the pool "
        f"{pool or app.conf.worker_pool}, celery_dlq {VERSION}, Celery {CELERY} and Python "
        f"{platform.python_version()}: {counted(sum(sends), 'message')} in {counted(len(sends), 'scenario')}."
    )


def _left_open(session: Session) -> Iterator[Account]:
    from celery_dlq.drill.account import Account, Result

    session.load_tasks()
    for check, finding in examine(session, _OPEN):
        if finding.level is not Level.OK:
            yield Account(
                scenario=check, title="the configuration", result=Result.OPEN, text=finding.text
            )
