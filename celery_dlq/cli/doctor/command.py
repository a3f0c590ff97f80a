"""``dlq doctor``: checks the installation. Each check examines one part and names the next step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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

#: One check, or a part of it.
Check = Callable[[Session], Findings]

#: The checks in the order in which they run. They have names in the output and in the documentation. The
#: static ones read the settings and the code: they connect to nothing, and write nothing.
CHECKS: tuple[tuple[str, bool, Check], ...] = (
    ("settings", True, app.check_settings),
    ("store", True, storage.check_store_url),
    ("store", False, storage.check_store),
    ("servers", False, storage.check_servers),
    ("clock", False, storage.check_clock),
    ("keys", False, storage.check_keys),
    ("spool", False, storage.check_spool),
    ("broker", True, broker.check_transport),
    ("broker", False, broker.check_broker),
    ("workers", False, broker.check_workers),
    ("stalled", False, broker.check_stalled),
    ("tasks", True, app.check_tasks),
    ("queues", True, app.check_default_queue),
    ("queues", False, app.check_queues),
    ("rules", True, app.check_rules),
    ("hooks", True, app.check_hooks),
    ("fingerprints", False, app.check_fingerprints),
    ("routes", True, app.check_routes),
    ("capture", True, app.check_capture),
    ("parked", False, app.check_parked),
    ("unsent", False, app.check_unsent),
    ("circuits", False, app.check_circuits),
    ("acks", True, broker.check_acks),
    ("auto", True, app.check_automations),
    ("auto", False, app.check_auto_redrives),
    ("auto", False, app.check_handlers),
    ("retention", False, storage.check_retention),
    ("archive", False, storage.check_archive),
    ("recorder", False, broker.check_recorder),
    ("taking", False, broker.check_taking),
)

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
    checks = [(name, check) for name, is_static, check in CHECKS if is_static or not static]
    found = list(examine(session, checks))
    rows = [(check, item.level.value, item.text) for check, item in found]
    columns = (Column("CHECK", rigid=True), Column("RESULT", rigid=True), Column("", fold=True))
    records = [dict(zip(("check", "result", "text"), row, strict=True)) for row in rows]
    session.screen.emit(form, records, Table(columns, rows))
    if any(item.level in _FAILING[fail_on] for _, item in found):
        leave(FAILED)


def examine(session: Session, checks: Iterable[tuple[str, Check]]) -> Iterator[tuple[str, Finding]]:
    """Run ``checks``; each finding comes with the name of its check. A check that raises is reported as an
    error and does not stop the others. A cause that breaks several checks is reported once, by the first of
    them."""
    causes: dict[Finding, dict[str, None]] = {}
    for name, check in checks:
        for found in _findings(check, session):
            causes.setdefault(found, {})[name] = None
    for found, (name, *others) in causes.items():
        yield name, replace(found, text=for_app(found.text))
        if others:
            text = f"not checked, for the same reason: {', '.join(others)}"
            yield name, replace(found, text=text)


def _findings(check: Check, session: Session) -> Findings:
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
