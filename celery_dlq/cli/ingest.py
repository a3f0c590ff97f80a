"""The command that brings in the messages of a broker's own dead-letter queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from celery_dlq.cli.exits import DONE, INTERRUPTED, PARTLY
from celery_dlq.cli.options import limit_option
from celery_dlq.cli.progress import Step, shown_progress, stopping_on_interrupt
from celery_dlq.cli.selection import confirm
from celery_dlq.cli.session import Session, operator
from celery_dlq.errors import CeleryDLQError
from celery_dlq.view.text import counted

if TYPE_CHECKING:
    from celery_dlq.ingest.engine import IngestReport


@click.command("ingest")
@click.argument("queue", metavar="QUEUE")
@click.option(
    "--to", metavar="QUEUE",
    help="Queue to which a redrive sends messages that do not say where they came from.",
)  # fmt: skip
@limit_option("At most so many messages.")
@click.option("--dry-run", is_flag=True, help="Count the messages and touch nothing.")
@click.option("--yes", is_flag=True, help="Do not ask, even if it is a queue that tasks wait in.")
@click.pass_obj
def ingest(
    cli: Any, queue: str, to: str | None, limit: int | None, dry_run: bool, yes: bool
) -> None:
    """Bring a broker's dead-letter queue into the store.

    QUEUE is a RabbitMQ queue behind a dead-letter exchange, a Redis list, or an SQS queue. Each
    message becomes a letter, reason ingested, and is deleted from the broker once the letter is
    stored. Ctrl-C finishes the batch under way, a second one stops at once.
    """
    _check_names(queue, to)
    session = Session(cli)
    if dry_run:
        _count(session, queue)
        return
    if queue in session.cli.app.amqp.queues:
        question = f"{queue} is a queue that tasks of this app wait in. Ingest it all the same?"
        confirm(session, question, count=_held(session, queue), yes=yes)
    _tell(session, queue, _run(session, queue, to or "", limit))


def _check_names(queue: str, to: str | None) -> None:
    """:raises click.UsageError: the command line makes no sense."""
    if not queue.strip() or (to is not None and not to.strip()):
        raise click.UsageError("A queue's name is empty; give it a value, or leave out --to.")
    if to == queue:
        raise click.UsageError("--to is the queue that is ingested; name the one where tasks wait.")


def _held(session: Session, queue: str) -> int:
    from celery_dlq.ingest.source import open_source

    with open_source(session.queue.app, queue) as source:
        return source.count()


def _count(session: Session, queue: str) -> None:
    session.screen.show(f"{queue} holds {_messages(_held(session, queue))}; nothing was touched.")


def _run(session: Session, queue: str, to: str, limit: int | None) -> IngestReport:
    reached: list[IngestReport] = []
    with (
        shown_progress(session.cli, "Ingesting") as show,
        stopping_on_interrupt() as should_stop,
    ):

        def on_progress(report: IngestReport) -> None:
            reached[:] = [report]
            known = f"{report.known:,} known already"
            show(Step(report.total, report.done, short=known, long=_counts(report)))

        # Before anything is taken: what is given back counts as delivered once more.
        session.store.check_schema()
        try:
            return session.queue.ingest(
                queue, who=operator(), to=to, limit=limit, on_progress=on_progress,
                should_stop=should_stop,
            )  # fmt: skip
        except (CeleryDLQError, KeyboardInterrupt):
            for last in reached:
                session.cli.error(f"Before the end: {_counts(last)}.")
            raise


def _tell(session: Session, queue: str, report: IngestReport) -> None:
    tell = session.cli.error if report.refused or report.interrupted else session.done
    if report.interrupted:
        tell("Interrupted.")
    if report.done:
        tell(f"From {queue}: {_counts(report)}. See: {session.command('list')}")
    elif not report.interrupted:
        tell(f"Nothing was in {queue}.")
    if report.interrupted:
        click.get_current_context().exit(INTERRUPTED)
    click.get_current_context().exit(PARTLY if report.refused else DONE)


def _counts(report: IngestReport) -> str:
    said = [f"{_messages(report.arrived)} ingested"]
    if report.known:
        said.append(f"{report.known:,} known already and removed")
    if report.refused:
        said.append(f"{report.refused:,} refused by the store and left in the queue")
    return ", ".join(said)


def _messages(count: int) -> str:
    return counted(count, "message")
