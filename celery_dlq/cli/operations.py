"""Commands about operations, which is what redrives are: look at them, stop them, go on with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from celery_dlq.cli.operation_view import next_step, operation_parts, operation_table
from celery_dlq.cli.options import choice, format_option, limit_option
from celery_dlq.cli.running import end, run_shown
from celery_dlq.cli.session import Session, operator
from celery_dlq.operation import OperationState, SendingState
from celery_dlq.view import records


@click.group("operations")
def operations() -> None:
    """Look at redrives, stop them, go on with them."""


@operations.command("list")
@click.option(
    "--state", "states", type=choice(OperationState), multiple=True,
    help="May be given several times. Default: all.",
)  # fmt: skip
@limit_option("Operations to show.", default=20)
@format_option
@click.pass_obj
def list_operations(cli: Any, states: Sequence[str], limit: int, form: str) -> None:
    """List operations, newest first."""
    session = Session(cli)
    wanted = frozenset(map(OperationState, states))
    found = session.store.operations(states=wanted, limit=limit)
    session.screen.emit(form, [*map(records.operation_record, found)], operation_table(found))


@operations.command("show")
@click.argument("operation_id", metavar="ID")
@click.option(
    "--state", "states", type=choice(SendingState), multiple=True,
    help="Show letters in this state; may be given several times. Default: failed, unknown, skipped.",
)  # fmt: skip
@limit_option("Letters of a page.", default=20)
@click.option("--after", metavar="CURSOR", help="Continue behind the page that named this cursor.")
@format_option
@click.pass_obj
def show(
    cli: Any, operation_id: str, states: Sequence[str], limit: int, after: str | None, form: str
) -> None:
    """Show one operation, and what became of its letters.

    ID is its id or a beginning of it that no other operation has.
    """
    session = Session(cli)
    operation = session.operation(operation_id)
    wanted = frozenset(map(SendingState, states)) or _TROUBLED
    page = session.store.sendings(operation.id, states=wanted, limit=limit, after=after)
    session.screen.emit(
        form,
        records.whole_operation_record(operation, page.rows),
        *operation_parts(operation, page.rows, session.command),
    )
    if page.next:
        session.say(f"More: add --after {page.next}")


_TROUBLED = frozenset({SendingState.FAILED, SendingState.UNKNOWN, SendingState.SKIPPED})


@operations.command("pause")
@click.argument("operation_id", metavar="ID")
@click.pass_obj
def pause(cli: Any, operation_id: str) -> None:
    """Stop an operation so that it can go on later.

    Who runs it stops after the batch in hand. What was sent stays sent.
    """
    session = Session(cli)
    paused = session.queue.pause(session.operation(operation_id).id, who=operator())
    session.done(f"Paused operation {paused.id}. Next: {next_step(paused, session.command)}")


@operations.command("cancel")
@click.argument("operation_id", metavar="ID")
@click.pass_obj
def cancel(cli: Any, operation_id: str) -> None:
    """End an operation for good; what was not sent is as it was."""
    session = Session(cli)
    ended = session.queue.cancel(session.operation(operation_id).id, who=operator())
    left = f"{ended.counts.left:,} letters were not sent and are as they were"
    session.done(f"Cancelled operation {ended.id}; {left}.")


@operations.command("resume")
@click.argument("operation_id", metavar="ID")
@click.option("--detach", is_flag=True, help="Leave it to a worker.")
@click.pass_obj
def resume(cli: Any, operation_id: str, detach: bool) -> None:
    """Go on with an operation that was paused, or whose process was killed."""
    session = Session(cli)
    session.load_tasks()
    operation = session.operation(operation_id)
    who = operator()
    if detach:
        left = session.queue.resume(operation.id, who=who, detach=True)
        see = session.command("operations", "show", left.id)
        session.done(f"Operation {left.id} is left to a worker. See: {see}")
        return
    done = run_shown(session, lambda **shown: session.queue.resume(operation.id, who=who, **shown))
    end(session, done, left_alone=False, waited=False)
