"""Commands that act on letters: send them back, close them, open them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from celery_dlq.cli import times
from celery_dlq.cli.exits import DONE, FAILED, INTERRUPTED, one_line
from celery_dlq.cli.letter_table import letter_table
from celery_dlq.cli.options import filters, limit_option, read_with, selection_options
from celery_dlq.cli.progress import Step, shown_progress, stopping_on_interrupt
from celery_dlq.cli.render import Column, Facts, Part, Short, Table
from celery_dlq.cli.selection import confirm, left_alone, select
from celery_dlq.cli.session import Session, operator
from celery_dlq.cli.text import counted, short_ids, visible
from celery_dlq.errors import CeleryDLQError
from celery_dlq.states import State
from celery_dlq.store.base import Filter

if TYPE_CHECKING:
    from celery_dlq.redrive.plan import Plan, Progress, Report, Skipped

#: The states that a redrive and a discard can take letters from; ``REDRIVEN`` only when named.
_TAKEABLE = (State.DEAD, State.REDRIVEN)

#: Letters of a report that are named one by one, and letters shown before a discard.
_NAMED, _EXAMPLES = 20, 10


@click.command("redrive")
@filters(states=_TAKEABLE)
@limit_option("At most so many letters.")
@click.option(
    "--rate", metavar="RATE", callback=read_with(times.parse_rate),
    help="At most so many messages: 50/s, 300/m, 1000/h; 50 means a second.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show the plan and send nothing.")
@selection_options
@click.pass_obj
def redrive(
    cli: Any,
    ids: Sequence[str],
    everything: bool,
    yes: bool,
    wanted: Filter,
    limit: int | None,
    rate: float | None,
    dry_run: bool,
) -> None:
    """Send the original messages back to their queues.

    Takes dead letters; with --state redriven also those that were sent and whose outcome never
    came. Ctrl-C finishes the batch under way, a second one stops at once.
    """
    session = Session(cli)
    wanted = select(session, ids, wanted, everything=everything)
    session.load_tasks()
    plan = session.queue.plan(wanted, limit=limit)
    failed = left_alone(session, wanted, wanted.states or {State.DEAD}) > 0
    if dry_run or (plan.matched > 1 and not cli.quiet):
        session.screen.show(*_plan_parts(plan, rate))
    if dry_run:
        return
    if not plan.sendable:
        _end_without_sending(session, plan, failed=failed or bool(wanted.ids or plan.skipped))
    confirm(session, f"Redrive {_letters(plan.sendable)}?", count=plan.sendable, yes=yes)
    _tell(session, _run(session, wanted, limit, rate), failed=failed)


def _run(session: Session, wanted: Filter, limit: int | None, rate: float | None) -> Report:
    reached: list[Progress] = []

    with shown_progress(session.cli, "Redriving") as show, stopping_on_interrupt() as should_stop:

        def on_progress(progress: Progress) -> None:
            reached[:] = [progress]
            show(_step(progress))

        try:
            return session.queue.redrive(
                wanted, limit=limit, rate=rate, who=operator(),
                on_progress=on_progress, should_stop=should_stop,
            )  # fmt: skip
        except (CeleryDLQError, KeyboardInterrupt):
            for last in reached:
                session.cli.error(f"Sent {last.sent:,} of {_letters(last.total)} before the end.")
            raise


def _step(progress: Progress) -> Step:
    skipped = f"{progress.skipped} skipped"
    return Step(
        total=progress.total,
        done=progress.sent + progress.skipped,
        short=skipped,
        long=f"{progress.sent} sent, {skipped}",
    )


def _plan_parts(plan: Plan, rate: float | None) -> list[Part]:
    takes = times.duration(plan.sendable / rate) if rate and plan.sendable else None
    facts = Facts(
        "Plan",
        [
            ("Match", _letters(plan.matched)),
            ("To send", _letters(plan.sendable)),
            ("Takes about", takes),
            *(("Note", note) for note in plan.notes),
        ],
    )
    tasks = Table(
        (Column("TASK"), Column("SENDABLE", right=True, rigid=True)), [*plan.by_task.items()]
    )
    parts: list[Part] = [facts]
    if plan.by_task:
        parts.append(tasks)
    if plan.skipped:
        parts.append(_skipped_table(plan.skipped))
    return parts


def _skipped_table(skipped: Sequence[Skipped]) -> Table:
    ids = short_ids([item.task_id for item in skipped])
    rows = [
        (Short(short, item.task_id), item.why) for short, item in zip(ids, skipped, strict=True)
    ]
    return Table((Column("CANNOT BE SENT", rigid=True), Column("WHY", fold=True)), rows)


def _end_without_sending(session: Session, plan: Plan, *, failed: bool) -> NoReturn:
    for item in plan.skipped:
        session.cli.error(_not_sent(item))
    if plan.matched:
        session.cli.error(" ".join(("Nothing was sent.", *plan.notes)))
    elif failed:
        session.cli.error("Nothing was sent: no dead letter with these ids and filters is waiting.")
    else:
        session.screen.show("No dead letters match.")
    click.get_current_context().exit(FAILED if failed else DONE)


def _not_sent(item: Skipped) -> str:
    return visible(f"Not sent: {item.task_id}: {item.why}")


def _tell(session: Session, report: Report, *, failed: bool) -> None:
    partly = bool(report.error or report.skipped or report.unsent or report.uncertain)
    tell = session.cli.error if partly or report.interrupted else session.done
    for item in report.skipped[:_NAMED]:
        tell(_not_sent(item))
    for sentence in _sentences(session, report):
        tell(sentence)
    if report.interrupted:
        click.get_current_context().exit(INTERRUPTED)
    click.get_current_context().exit(FAILED if partly or failed else DONE)


def _sentences(session: Session, report: Report) -> list[str]:
    said = [f"Sent {report.sent:,} of {_letters(report.planned)}."]
    if report.interrupted:
        said.insert(0, "Interrupted.")
    if report.skipped:
        said.append(f"{len(report.skipped):,} cannot be sent and stay dead.")
    if report.unsent:
        said.append(f"{report.unsent:,} were not sent and are as they were.")
    if report.uncertain:
        said.append(
            f"{report.uncertain:,} were handed over without the broker's word; "
            "they are free again when their claim ends (dlq_claim_lease)."
        )
    if report.error:
        said.append(f"Error: {one_line(report.error)}; run: {session.command('doctor')}")
    elif report.sent:
        said.append(f"Outcomes: {session.command('list', '--state', 'redriven')}")
    return said


@click.command("discard")
@filters(states=_TAKEABLE)
@click.option(
    "--why", required=True, metavar="TEXT", help="Why nobody needs them; kept with the letters."
)
@selection_options
@click.pass_obj
def discard(
    cli: Any, ids: Sequence[str], everything: bool, yes: bool, wanted: Filter, why: str
) -> None:
    """Close letters for good, with a reason. `undiscard` opens them again."""
    if not why.strip():
        raise click.UsageError("--why is empty; say why nobody needs these letters.")
    session = Session(cli)
    wanted = select(session, ids, wanted, everything=everything)
    wanted = replace(wanted, states=wanted.states or frozenset({State.DEAD}))
    failed = _confirm_act(session, "Discard", wanted, yes=yes)
    done = session.store.discard(wanted, who=operator(), why=why, now=times.utc_now())
    session.done(f"Discarded {_letters(done)}. To undo: {_undo(session, wanted)}")
    click.get_current_context().exit(FAILED if failed else DONE)


@click.command("undiscard")
@filters(states=())
@selection_options
@click.pass_obj
def undiscard(cli: Any, ids: Sequence[str], everything: bool, yes: bool, wanted: Filter) -> None:
    """Open discarded letters again."""
    session = Session(cli)
    wanted = select(session, ids, wanted, everything=everything)
    wanted = replace(wanted, states=frozenset({State.DISCARDED}))
    failed = _confirm_act(session, "Open again", wanted, yes=yes)
    done = session.store.undiscard(wanted, who=operator(), now=times.utc_now())
    session.done(f"Opened {_letters(done)} again. See: {session.command('list')}")
    click.get_current_context().exit(FAILED if failed else DONE)


def _confirm_act(session: Session, verb: str, wanted: Filter, *, yes: bool) -> bool:
    """Count, show and confirm; ends the command when nothing matches. Returns whether letters that
    were named by id are left alone."""
    failed = left_alone(session, wanted, wanted.states) > 0
    count = session.store.count(wanted)
    if not count:
        if not failed:
            session.screen.show("No dead letters match.")
        click.get_current_context().exit(FAILED if failed or wanted.ids else DONE)
    if count > 1 and not yes:
        _show_some(session, wanted, count)
    confirm(session, f"{verb} {_letters(count)}?", count=count, yes=yes)
    return failed


def _show_some(session: Session, wanted: Filter, count: int) -> None:
    found = session.store.find(wanted, limit=_EXAMPLES).letters
    more = [f"… and {_letters(count - len(found))} more"] if count > len(found) else []
    session.screen.show(letter_table(found), *more)


def _undo(session: Session, wanted: Filter) -> str:
    if len(wanted.ids) == 1:
        return session.command("undiscard", *wanted.ids)
    return f"{session.command('undiscard')} with the same ids or filters"


def _letters(count: int) -> str:
    return counted(count, "dead letter")
