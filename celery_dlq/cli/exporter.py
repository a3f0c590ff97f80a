"""A server for Prometheus."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from threading import Event
from typing import Any

import click

from celery_dlq.cli.exits import one_line
from celery_dlq.cli.session import Session
from celery_dlq.errors import SchemaError, StoreUnavailable
from celery_dlq.metrics.extra import need_prometheus


@click.command("exporter")
@click.option(
    "--port", type=click.IntRange(0, 65_535), metavar="N", default=9810, show_default=True,
    help="Port to listen on; 0 for one that is free.",
)  # fmt: skip
@click.option(
    "--address", metavar="HOST", default="127.0.0.1", show_default=True,
    help="Address to listen on; 0.0.0.0 for all. Whoever reaches it reads names of tasks and exceptions.",
)  # fmt: skip
@click.pass_obj
def exporter(cli: Any, port: int, address: str) -> None:
    """Serve the metrics of the store to Prometheus.

    Runs until it gets SIGTERM or Ctrl-C. While the store does not answer, celery_dlq_up is 0. Needs the
    extra prometheus.
    """
    need_prometheus()
    from celery_dlq.metrics.exporter import exporting

    session = Session(cli)
    _look_at_store(session)
    with (
        _told_to_stop() as stop,
        exporting(session.queue.snapshots, address=address, port=port) as url,
    ):
        session.say(f"Serving {url}")
        stop.wait()
    session.say("Stopped.")


def _look_at_store(session: Session) -> None:
    """Say what is wrong with the store, which may mend; what cannot is raised."""
    try:
        session.store  # noqa: B018
    except (StoreUnavailable, SchemaError) as error:
        session.say(f"{one_line(str(error))} Until then celery_dlq_up is 0.")


@contextlib.contextmanager
def _told_to_stop() -> Iterator[Event]:
    """An event that SIGTERM and Ctrl-C set."""
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
