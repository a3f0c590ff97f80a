"""``dlq exporter``: an HTTP server for Prometheus."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from threading import Event
from typing import Any

import click

from celery_dlq.cli.exits import for_app, one_line
from celery_dlq.cli.session import Session
from celery_dlq.errors import SchemaError, StoreUnavailable
from celery_dlq.metrics.families import need_prometheus
from celery_dlq.store.database.client import Role


@click.command("exporter")
@click.option(
    "--port", type=click.IntRange(0, 65_535), metavar="N", default=9810, show_default=True,
    help="Port to listen on; 0 picks a free one.",
)  # fmt: skip
@click.option(
    "--address", metavar="HOST", default="127.0.0.1", show_default=True,
    help="Address to listen on; 0.0.0.0 for all. The metrics show names of tasks and exceptions.",
)  # fmt: skip
@click.pass_obj
def exporter(cli: Any, port: int, address: str) -> None:
    """Serve the metrics of the store to Prometheus.

    Runs until SIGTERM or Ctrl-C. While the store does not answer, celery_dlq_up is 0. Needs the prometheus
    extra.
    """
    need_prometheus()
    from celery_dlq.metrics.collector import exporting

    session = Session(cli, Role.EXPORTER)
    _report_store_errors(session)
    with (
        _stop_on_signal() as stop,
        exporting(session.queue.snapshots, address=address, port=port) as url,
    ):
        session.say(f"Serving {url}")
        stop.wait()
    session.say("Stopped.")


def _report_store_errors(session: Session) -> None:
    """Open the store. Errors that may pass are reported, because the exporter keeps running; others are
    raised."""
    try:
        session.store  # noqa: B018
    except (StoreUnavailable, SchemaError) as error:
        why = one_line(for_app(str(error))).rstrip(".")
        session.say(f"{why}. Until this is fixed, celery_dlq_up is 0.")


@contextlib.contextmanager
def _stop_on_signal() -> Iterator[Event]:
    """An event that is set by SIGTERM and Ctrl-C."""
    stop = Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
