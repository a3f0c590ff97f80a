"""``dlq doctor``: checks the installation. Each check examines one part and names the next step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import click
from kombu.transport import TRANSPORT_ALIASES

from celery_dlq.cli.doctor import Finding, Findings, Level, app, broker, failure, said, storage
from celery_dlq.cli.exits import FAILED, for_app, leave
from celery_dlq.cli.options import Word, format_option
from celery_dlq.cli.screens.parts import Column, Table
from celery_dlq.cli.session import Session, pass_session
from celery_dlq.worker.broker_limits import scheme_of

#: The checks in the order in which they run. They have names in the output and in the documentation.
CHECKS: dict[str, Callable[[Session], Findings]] = {
    "settings": app.check_settings,
    "store": storage.check_store,
    "servers": storage.check_servers,
    "clock": storage.check_clock,
    "spool": storage.check_spool,
    "broker": broker.check_broker,
    "workers": broker.check_workers,
    "stalled": broker.check_stalled,
    "tasks": app.check_tasks,
    "queues": app.check_queues,
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

#: The checks that read the settings and the code. They connect to nothing, and write nothing.
STATIC: dict[str, Callable[[Session], Findings]] = {
    "broker": broker.check_transport,
    **{
        name: CHECKS[name]
        for name in ("settings", "tasks", "rules", "hooks", "routes", "capture", "waits", "acks")
    },
    "store": storage.check_store_url,
    "queues": app.check_default_queue,
    "auto": app.check_auto_definitions,
    "handlers": app.check_handler_definitions,
}

#: The findings with which the command exits with 1.
_FAILING = {"error": (Level.ERROR,), "warning": (Level.ERROR, Level.WARNING)}


@click.command("doctor")
@click.option(
    "--static", is_flag=True,
    help="Check only settings and code, without the store, the broker and workers. For CI, before a deploy.",
)  # fmt: skip
@click.option(
    "--fail-on", type=Word("a result", _FAILING), default="error", show_default=True,
    help="The result with which the command exits with 1.",
)  # fmt: skip
@format_option
@pass_session
def doctor(session: Session, static: bool, fail_on: str, form: str) -> None:
    """Check the installation and suggest fixes.

    Examines settings, store, spool, broker and tasks. Exits with 1 if a check finds an error.
    """
    found = list(examine(session, STATIC if static else CHECKS))
    rows = [(check, item.level.value, item.text) for check, item in found]
    columns = (Column("CHECK", rigid=True), Column("RESULT", rigid=True), Column("", fold=True))
    records = [dict(zip(("check", "result", "text"), row, strict=True)) for row in rows]
    session.screen.emit(form, records, Table(columns, rows))
    if any(item.level in _FAILING[fail_on] for _, item in found):
        leave(FAILED)


def examine(
    session: Session, checks: Mapping[str, Callable[[Session], Findings]] = CHECKS
) -> Iterator[tuple[str, Finding]]:
    """Run ``checks``; each finding comes with the name of its check. A check that raises is reported as an
    error and does not stop the others. A cause that breaks several checks is reported once, by the first of
    them."""
    causes: dict[Finding, list[str]] = {}
    for name, check in checks.items():
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
    except ModuleNotFoundError as error:
        yield failure(
            f"{said(error)}; the client of the broker is missing; run: pip install {_client(session.cli.app)}"
        )
    except Exception as error:  # noqa: BLE001 - the other checks still run
        yield failure(said(error))


def _client(app: Any) -> str:
    """What installs the client of the app's broker: the extra that is named as kombu's module."""
    extra = TRANSPORT_ALIASES.get(scheme_of(app), "").partition(":")[0].rpartition(".")[2].lower()
    return "'celery-dlq[redis]'" if extra == "redis" else f"'kombu[{extra or '…'}]'"
