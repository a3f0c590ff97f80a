"""Commands for the assistant alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from celery_dlq.cli.letters.explain import show_explanation
from celery_dlq.cli.options import TAKEABLE, Chosen, filters, limit_option, read_with, whole_number
from celery_dlq.cli.selection import select
from celery_dlq.cli.session import Session, pass_session
from celery_dlq.model.operation import Orders, Pacing
from celery_dlq.redrive.orders import check_orders
from celery_dlq.redrive.plan import make_plan, try_first
from celery_dlq.store.base import Filter
from celery_dlq.view import times
from celery_dlq.view.fields import as_record


@click.command("explain")
@click.argument("what", required=False)
@pass_session
def explain(session: Session, what: str | None) -> None:
    """Explain what ``dlq explain`` explains, except files and modules that are not imported."""
    show_explanation(session, what, "json", by_a_person=False)


@click.command("redrive")
@click.argument("ids", nargs=-1)
@filters(states=TAKEABLE)
@limit_option("Send at most this many letters, oldest failures first.")
@click.option(
    "--canary", type=whole_number(),
    help="Send this many letters first, and the others only if all succeed.",
)  # fmt: skip
@click.option(
    "--rate", callback=read_with(times.parse_rate), help="Maximum rate, such as 50/s, 300/m or 1000/h."
)  # fmt: skip
@click.option(
    "--all", "everything", is_flag=True, help="Take every letter, without ids or filters."
)
@pass_session
def propose(
    session: Session, ids: Sequence[str], wanted: Filter, everything: bool, **pacing: Any
) -> None:
    """Show the plan; it creates no operation. The first letters are checked, for a second at most."""
    chosen = Chosen(ids=ids, everything=everything, dry_run=True, yes=False)
    wanted = select(session, chosen, wanted)
    session.load_tasks()
    given = {name: value for name, value in pacing.items() if value is not None}
    orders = Orders(pacing=Pacing(**given))
    check_orders(orders)
    # DeadLetterQueue.plan() also frees claims, and a tool writes nothing.
    context = session.queue.redrive_context
    plan = make_plan(context, wanted, orders, try_first(context, wanted, orders))
    skipped = [as_record(one, ("task_id", "task", "why_not")) for one in plan.skipped]
    session.screen.emit("json", as_record(plan, skipped=skipped, changes=[]))
