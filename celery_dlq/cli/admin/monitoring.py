"""``dlq check``, a plugin for Nagios and Icinga that is also useful in cron; and ``dlq exporter``, an HTTP
server for Prometheus."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from threading import Event
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from celery_dlq.cli.exits import for_app, one_line
from celery_dlq.cli.options import MAIN_FILTERS, Word, filters, read_with
from celery_dlq.cli.selection import checked
from celery_dlq.cli.session import Session, pass_session
from celery_dlq.errors import SchemaError, StoreError, StoreUnavailable
from celery_dlq.metrics.families import need_prometheus
from celery_dlq.store.base import Filter
from celery_dlq.store.database.client import Role
from celery_dlq.view import times
from celery_dlq.view.text import counted

if TYPE_CHECKING:
    from celery_dlq.store import Store

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Status(IntEnum):
    """The exit statuses of Nagios plugins; their names start the output line."""

    OK = 0
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True)
class Measured:
    """A value and its limit: one above it is critical."""

    value: float
    most: float
    #: The value in words.
    text: str
    #: Its name and unit for the performance data.
    label: str
    unit: str = ""

    @property
    def status(self) -> Status:
        """The status of the value."""
        return Status.CRITICAL if self.value > self.most else Status.OK

    @property
    def said(self) -> str:
        """The value in words, with its status if that is not OK."""
        return self.text if self.status is Status.OK else f"{self.text} (critical)"

    @property
    def performance(self) -> str:
        """``'label'=value[unit];[warn];[crit];[min]`` of the Monitoring Plugins' guidelines."""
        return f"{self.label}={_decimal(self.value)}{self.unit};;{_decimal(self.most)};0"


def _decimal(number: float) -> str:
    """``number`` in digits: monitors would read an exponent as a unit."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


class CheckCommand(click.Command):
    """A command that always exits with the status of a Nagios plugin; monitors would misread any other."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> Any:
        """Read the command line."""
        try:
            return super().make_context(info_name, args, *rest, **extra)
        except click.UsageError as error:
            _end(Status.UNKNOWN, error.format_message())

    def invoke(self, ctx: click.Context) -> Any:
        """Run the check."""
        try:
            return super().invoke(ctx)
        except click.exceptions.Exit:
            raise
        except click.UsageError as error:
            _end(Status.UNKNOWN, error.format_message())
        except StoreError as error:
            _end(Status[ctx.params["store_down"].upper()], for_app(str(error)))
        except Exception as error:  # noqa: BLE001 - Python's own status, 1, would be a warning
            _end(Status.UNKNOWN, str(error) or type(error).__name__)


def _limit_option(
    name: str, text: str, metavar: str, read: Callable[[str], float]
) -> Callable[[_Command], _Command]:
    return click.option(name, metavar=metavar, callback=read_with(read), help=text)


def _whole(text: str) -> float:
    if not text.strip().isascii() or not text.strip().isdecimal():
        raise ValueError(f"{text!r} is not a number of letters; write 0 or 100, for example.")
    return float(text)


def _per_minute(text: str) -> float:
    return 60 * times.parse_rate(text)


@click.command("check", cls=CheckCommand)
@_limit_option("--max-depth", "Critical: more open letters than this.", "N", _whole)
@_limit_option(
    "--max-age", "Critical: a letter has waited longer than this, such as 1d.", "DURATION", times.parse_span
)  # fmt: skip
@_limit_option(
    "--max-rate", "Critical: letters arrive faster than this, such as 10/m.", "RATE", _per_minute
)
@click.option(
    "--window", metavar="DURATION", default="10m", show_default=True, callback=read_with(times.parse_span),
    help="Period of the rate, in whole minutes, up to the last full minute.",
)  # fmt: skip
@click.option(
    "--store-down", type=Word("a status", ["unknown", "critical"]), default="unknown", show_default=True,
    help="Status when the store does not answer.",
)  # fmt: skip
@filters(only=MAIN_FILTERS)
@pass_session
def check(
    session: Session,
    /,
    wanted: Filter,
    window: float,
    store_down: str,
    max_depth: float | None,
    max_age: float | None,
    max_rate: float | None,
) -> None:
    """Check that dead letters are within limits.

    Prints one line with performance data, and exits like a Nagios plugin: 0 OK, 2 CRITICAL, 3 UNKNOWN. The
    filters select the letters that count; rates accept only --task and --exception.
    """  # fmt: skip
    if (max_depth, max_age, max_rate) == (None, None, None):
        raise click.UsageError("Give a limit: --max-depth, --max-age or --max-rate.")
    wanted = checked(session, wanted)
    store, found = session.store, list[Measured]()
    if max_depth is not None:
        depth = store.counts.letters(wanted)
        found.append(Measured(depth, max_depth, counted(depth, "letter"), "depth"))
    if max_age is not None:
        found.append(_age(store, wanted, max_age))
    if max_rate is not None:
        found.append(_rate(store, wanted, max_rate, window))
    worst = max(one.status for one in found)
    _end(worst, ", ".join(one.said for one in found), " ".join(one.performance for one in found))


def _age(store: Store, wanted: Filter, most: float) -> Measured:
    oldest = store.letters.oldest(wanted)
    if oldest is None:
        return Measured(0.0, most, "none waiting", "age", "s")
    # A worker's clock may be ahead.
    seconds = max(0.0, (times.utc_now() - oldest).total_seconds())
    return Measured(seconds, most, f"the oldest has waited {times.duration(seconds)}", "age", "s")


def _rate(store: Store, wanted: Filter, most: float, window: float) -> Measured:
    minutes = max(1, round(window / 60))
    until = times.utc_now().replace(second=0, microsecond=0)
    since = until - timedelta(minutes=minutes)
    rate = store.counts.arrivals(wanted, since=since, until=until) / minutes
    return Measured(rate, most, f"{rate:.3g} arrive per minute", "arrivals_per_minute")


def _end(status: Status, text: str, performance: str = "") -> NoReturn:
    # A bar starts the performance data.
    line = f"DLQ {status.name} - {one_line(text).replace('|', '/')}"
    click.echo(f"{line} | {performance}" if performance else line)
    raise click.exceptions.Exit(status)


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
