"""``dlq ingest``: moves the messages of a broker's dead-letter queue into the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from celery_dlq.cli.exits import DONE, INTERRUPTED, PARTLY, HeadedCommand, leave
from celery_dlq.cli.options import limit_option
from celery_dlq.cli.screens.progress import Step, shown_progress, stopping_on_interrupt
from celery_dlq.cli.selection import confirm
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.errors import CeleryDLQError
from celery_dlq.view.text import counted

if TYPE_CHECKING:
    from celery_dlq.ingest.ingestion import IngestReport


@click.command("ingest", cls=HeadedCommand)
@click.argument("queue", metavar="QUEUE")
@click.option(
    "--to", metavar="QUEUE",
    help="Queue for redrives of messages whose origin is unknown.",
)  # fmt: skip
@limit_option("Ingest at most this many messages.")
@click.option("--dry-run", is_flag=True, help="Count the messages and change nothing.")
@click.option("--yes", is_flag=True, help="Skip the confirmation, even if tasks wait in QUEUE.")
@pass_session
def ingest(
    session: Session, queue: str, to: str | None, limit: int | None, dry_run: bool, yes: bool
) -> None:
    """Move a broker's dead-letter queue into the store.

    QUEUE is a RabbitMQ queue behind a dead-letter exchange, a Redis list, or an SQS queue. Each message
    becomes a letter with reason ingested, and is deleted from the broker once the letter is stored. Ctrl-C
    stops after the current batch, a second Ctrl-C stops at once.
    """
    if to == queue:
        raise click.UsageError("--to is the queue to ingest; give the queue where tasks wait.")
    if dry_run:
        held = counted(_held(session, queue), "message")
        session.screen.show(f"{queue} holds {held}; nothing was changed.")
        return
    if queue in session.cli.app.amqp.queues:
        question = f"Tasks of this app wait in the queue {queue}. Ingest it anyway?"
        confirm(session, question, count=_held(session, queue), yes=yes)
    _tell(session, queue, _run(session, queue, to or "", limit))


def _held(session: Session, queue: str) -> int:
    from celery_dlq.ingest.source import open_source

    with open_source(session.queue.app, queue) as source:
        return source.count()


def _run(session: Session, queue: str, to: str, limit: int | None) -> IngestReport:
    reached: list[IngestReport] = []
    with shown_progress(session.cli, "Ingesting") as show, stopping_on_interrupt() as should_stop:

        def on_progress(report: IngestReport) -> None:
            reached[:] = [report]
            known = f"{report.known:,} already known"
            show(Step(report.total, report.done, short=known, long=_counts(report)))

        # Check first: each message that is taken and given back counts as one more delivery.
        session.store.check_schema()
        try:
            return session.queue.ingest(
                queue, who=operator(), to=to, limit=limit, on_progress=on_progress,
                should_stop=should_stop,
            )  # fmt: skip
        except (CeleryDLQError, KeyboardInterrupt):
            for last in reached:
                session.error(f"Before it stopped: {_counts(last)}.")
            raise


def _tell(session: Session, queue: str, report: IngestReport) -> None:
    tell = session.error if report.refused or report.interrupted else session.done
    if report.interrupted:
        tell("Interrupted.")
    if report.done:
        tell(f"From {queue}: {_counts(report)}. See: {session.command('list')}")
    elif not report.interrupted:
        tell(f"{queue} is empty.")
    if report.interrupted:
        leave(INTERRUPTED)
    leave(PARTLY if report.refused else DONE)


def _counts(report: IngestReport) -> str:
    said = [f"{counted(report.arrived, 'message')} ingested"]
    if report.known:
        said.append(f"{report.known:,} already known and removed")
    if report.refused:
        said.append(f"{report.refused:,} refused by the store and left in the queue")
    return ", ".join(said)
