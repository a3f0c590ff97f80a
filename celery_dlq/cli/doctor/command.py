"""``dlq doctor``: checks the installation. Each check examines one part and names the next step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import click

from celery_dlq.cli.doctor import Finding, Findings, Level, app, broker, failure, said, storage
from celery_dlq.cli.exits import FAILED, for_app, leave
from celery_dlq.cli.screens.parts import Column, Table
from celery_dlq.cli.session import Session, pass_session

#: The checks in the order in which they run. They have names in the output and in the documentation.
CHECKS: dict[str, Callable[[Session], Findings]] = {
    "settings": app.check_settings,
    "store": storage.check_store,
    "servers": storage.check_servers,
    "replica": storage.check_replica,
    "pooler": storage.check_pooler,
    "clock": storage.check_clock,
    "spool": storage.check_spool,
    "broker": broker.check_broker,
    "workers": broker.check_workers,
    "stalled": broker.check_stalled,
    "ingest": broker.check_ingest,
    "tasks": app.check_tasks,
    "rules": app.check_rules,
    "hooks": app.check_hooks,
    "fingerprints": app.check_fingerprints,
    "routes": app.check_routes,
    "capture": app.check_capture,
    "waits": app.check_waits,
    "parked": app.check_parked,
    "circuits": app.check_circuits,
    "acks": broker.check_acks,
    "auto": app.check_auto_redrives,
    "handlers": app.check_handlers,
    "retention": storage.check_retention,
    "archive": storage.check_archive,
    "recorder": broker.check_recorder,
    "taking": broker.check_taking,
}


@click.command("doctor")
@pass_session
def doctor(session: Session) -> None:
    """Check the installation and suggest fixes.

    Examines settings, store, spool, broker and tasks. Exits with 1 if a check finds an error.
    """
    found = list(examine(session))
    rows = [(check, item.level.value, item.text) for check, item in found]
    columns = (Column("CHECK", rigid=True), Column("RESULT", rigid=True), Column("", fold=True))
    session.screen.show(Table(columns, rows))
    if any(item.level is Level.ERROR for _, item in found):
        leave(FAILED)


def examine(session: Session) -> Iterator[tuple[str, Finding]]:
    """Run all checks; each finding comes with the name of its check. A check that raises is reported as an
    error and does not stop the others. A cause that breaks several checks is reported once, by the first of
    them."""
    causes: dict[Finding, list[str]] = {}
    for name, check in CHECKS.items():
        for found in _findings(check, session):
            causes.setdefault(found, []).append(name)
    for found, (name, *others) in causes.items():
        yield name, replace(found, text=for_app(found.text))
        if others:
            text = f"not checked, for the same reason: {', '.join(others)}"
            yield name, replace(found, text=text)


def _findings(check: Callable[[Session], Findings], session: Session) -> Findings:
    try:
        yield from check(session)
    except Exception as error:  # noqa: BLE001 - the other checks still run
        yield failure(said(error))
