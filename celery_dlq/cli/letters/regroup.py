"""``dlq groups regroup``: applies today's recipe for fingerprints to stored letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

import click

from celery_dlq.cli.exits import DONE, INTERRUPTED, PARTLY
from celery_dlq.cli.options import format_option, why_option
from celery_dlq.cli.screens.progress import OnStep, Step, shown_progress, stopping_on_interrupt
from celery_dlq.cli.screens.regroup import counts_of, ended_records, kept_of, regroup_parts
from celery_dlq.cli.selection import confirm
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.model.regrouping import Kept, Regrouping
from celery_dlq.regroup.following import Ended, ended, foreseen
from celery_dlq.view.text import counted, visible
from celery_dlq.view.times import iso

if TYPE_CHECKING:
    from celery_dlq.regroup.engine import OnLooked, Plan, Regrouper


@click.command("regroup")
@click.option("--dry-run", is_flag=True, help="Show which groups become which, and change nothing.")
@click.option("--detach", is_flag=True, help="Let a worker do it.")
@click.option(
    "--result", "is_result", is_flag=True,
    help="Show the last regrouping: how far it has come, or its result.",
)  # fmt: skip
@why_option
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@format_option
@pass_session
def regroup(
    session: Session,
    dry_run: bool,
    detach: bool,
    is_result: bool,
    why: str,
    yes: bool,
    form: str,
) -> None:
    """Group stored letters by today's recipe.

    The recipe is that of dlq_fingerprint, or the built-in one. Status, owner, note and ticket follow if all
    letters of a group go to one group; otherwise they stay, and are offered. If it is interrupted, a worker
    continues it. Start the workers with the new recipe before. The exit status is 4 if the recipe failed for
    some letters.
    """
    _check(dry_run=dry_run, detach=detach, is_result=is_result)
    if is_result:
        _show_last(session, form)
        return
    regrouper = session.queue.regrouper()
    count = session.store.regroupings.count()
    if not count:
        session.screen.emit(form, [], "There are no dead letters.")
    elif dry_run:
        _show_plan(session, regrouper, form)
    else:
        _regroup(session, regrouper, form, count, detach=detach, why=why, yes=yes)


def _check(**ways: bool) -> None:
    given = [f"--{name.removeprefix('is_').replace('_', '-')}" for name, on in ways.items() if on]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other; give one of them.")


def _show_plan(session: Session, regrouper: Regrouper, form: str) -> None:
    with shown_progress(session.cli, "Comparing") as show:
        plan = regrouper.plan(_shown(show, "to move"))
    fates = sorted(plan.fates.values(), key=lambda one: one.fingerprint)
    found = foreseen(session.store, fates, session.screen.now)
    text = f"{counts_of(plan.looked, plan.moved, is_done=False)} {_unchanged(plan)}"
    kept = kept_of(plan.kept, regrouper.recipe, regrouper.problem)
    _emit(session, form, found, text, *kept)
    _exit_for(plan.kept)


def _unchanged(plan: Plan) -> str:
    same = len(set(plan.letters).difference(plan.to, *plan.to.values()))
    return f"{counted(same, 'group')} would stay as {'it is' if same == 1 else 'they are'}."


def _regroup(
    session: Session,
    regrouper: Regrouper,
    form: str,
    count: int,
    *,
    detach: bool,
    why: str,
    yes: bool,
) -> None:
    confirm(session, _question(session, regrouper, count), count=count, yes=yes)
    begun = regrouper.begin(who=operator(), why=why, detached=detach)
    if detach:
        see = session.command("groups", "regroup", "--result")
        session.done(f"A worker will regroup {counted(count, 'dead letter')}. See: {see}")
        return
    with (
        shown_progress(session.cli, "Regrouping") as show,
        stopping_on_interrupt() as should_stop,
    ):
        done = regrouper.run(begun, _shown(show, "moved"), should_stop)
    if not done.is_over:
        _end_interrupted(session, done)
    _show_done(session, form, done, regrouper.problem)
    _exit_for(done.kept)


def _exit_for(kept: Mapping[Kept, int]) -> None:
    """End with another status if the recipe failed for some letters."""
    if kept.get(Kept.RECIPE):
        click.get_current_context().exit(PARTLY)


def _question(session: Session, regrouper: Regrouper, count: int) -> str:
    last = session.store.regroupings.last()
    by = f"by {regrouper.recipe or 'the built-in recipe'}"
    if last is not None and not last.is_over and last.recipe == regrouper.recipe:
        return (
            f"Continue to regroup {counted(count, 'dead letter')} {by}, "
            f"which {last.who} began at {iso(last.began_at)}?"
        )
    return f"Regroup {counted(count, 'dead letter')} {by}?"


def _shown(show: OnStep, word: str) -> OnLooked:
    def on_looked(looked: int, total: int, moved: int) -> None:
        said = f"{moved:,} {word}"
        show(Step(total, looked, said, said))

    return on_looked


def _end_interrupted(session: Session, done: Regrouping) -> NoReturn:
    session.error(
        f"Interrupted after {counted(done.looked, 'dead letter')}. A worker with the same recipe continues "
        f"it soon; to continue it here, run: {session.command('groups', 'regroup')}"
    )
    click.get_current_context().exit(INTERRUPTED)


def _show_last(session: Session, form: str) -> None:
    last = session.store.regroupings.last()
    if last is None:
        session.screen.emit(form, [], "No letters have been regrouped.")
        click.get_current_context().exit(DONE)
    _show_done(session, form, last)


def _show_done(session: Session, form: str, done: Regrouping, problem: str = "") -> None:
    found = ended(session.store, session.store.regroupings.fates(), session.screen.now)
    text = counts_of(done.looked, done.moved, is_done=True)
    if not done.is_over:
        text = f"The regrouping that {done.who} began at {iso(done.began_at)} is not over. {text}"
    _emit(session, form, found, visible(text), *kept_of(done.kept, done.recipe, problem))


def _emit(session: Session, form: str, found: list[Ended], *sentences: str) -> None:
    parts = regroup_parts(found, session.command)
    session.screen.emit(form, ended_records(found, session.command), *parts, *sentences)
    if form != "table":
        for text in sentences:
            session.say(text)
