"""``dlq reclassify`` and ``dlq groups regroup``: apply today's rules, and today's recipe for fingerprints, to
stored letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from celery_dlq.cli.exits import DONE, FAILED, INTERRUPTED, PARTLY, HeadedCommand, leave
from celery_dlq.cli.options import (
    MAIN_FILTERS,
    Chosen,
    filters,
    format_option,
    selection_options,
    why_option,
    yes_option,
)
from celery_dlq.cli.screens.parts import Column, Field, Part, Table, last_name, table_of
from celery_dlq.cli.screens.progress import OnStep, Step, shown_progress, stopping_on_interrupt
from celery_dlq.cli.selection import confirm, left_alone, select
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter, NewVerdict
from celery_dlq.view import times
from celery_dlq.view.fields import as_record
from celery_dlq.view.text import counted

if TYPE_CHECKING:
    from celery_dlq.base.redact import Redactor
    from celery_dlq.classify import Rejudged
    from celery_dlq.upkeep.regroup import Fate, Regrouper

_STATES = (State.DEAD, State.REDRIVEN)

#: The most rows of each table: changed letters, and reasons why others cannot be judged.
_JUDGED_SHOWN = 50

_JUDGED_FIELDS: Sequence[Field] = (
    (Column("ID", rigid=True, ids=True), lambda record: record["task_id"]),
    (Column("TASK"), lambda record: last_name(record["task"])),
    (Column("EXCEPTION"), lambda record: last_name(record["exception_type"])),
    (Column("WAS", rigid=True), lambda record: record["verdict_before"]),
    (Column("BY"), lambda record: record["rule_before"]),
    (Column("IS NOW", rigid=True), lambda record: record["verdict"]),
    (Column("BY", fold=True), lambda record: record["rule"]),
)


@click.command("reclassify", cls=HeadedCommand)
@filters(only=MAIN_FILTERS, states=_STATES)
@selection_options
@format_option
@pass_session
def reclassify(session: Session, chosen: Chosen, wanted: Filter, form: str) -> None:
    """Judge stored letters by today's rules.

    Changes verdict, rule, evidence and path; a letter keeps its state and its reason. The verdict is based on
    stored data: type, message, causes, and the code in the evidence. Letters whose verdict depends on
    anything else are counted and left unchanged.
    """
    session.load_tasks()
    wanted = select(session, chosen, wanted, {State.DEAD})
    some_left_alone = left_alone(session, wanted, wanted.states) > 0
    found = _judge(session, wanted)
    changed = [item for item in found if item.changed is not None]
    redactor = session.queue.redactor
    rows = [_judged_record(item, redactor) for item in changed]
    session.screen.emit(form, rows, *_judged_parts(found, rows))
    is_whole = chosen.dry_run or not changed or _store(session, wanted, changed, yes=chosen.yes)
    if some_left_alone and not found:
        leave(FAILED)
    leave(DONE if is_whole and not some_left_alone else PARTLY)


def _judge(session: Session, wanted: Filter) -> list[Rejudged]:
    total, found = session.store.counts.letters(wanted), []
    with shown_progress(session.cli, "Judging") as show:
        for item in session.queue.rejudge(wanted):
            found.append(item)
            show(Step(total, len(found), "", "judged"))
    return found


def _store(session: Session, wanted: Filter, changed: Sequence[Rejudged], *, yes: bool) -> bool:
    """Store the new verdicts, after a confirmation; returns whether all were stored."""
    letters = counted(len(changed), "dead letter")
    confirm(session, f"Reclassify {letters}?", count=len(changed), yes=yes)
    changes = [
        NewVerdict(
            task_id=item.letter.task_id,
            failed_at=item.letter.last_failed_at,
            explanation=item.changed,
        )
        for item in changed
        if item.changed is not None
    ]
    done = session.store.letters.reclassify(
        changes, wanted=wanted, who=operator(), now=times.utc_now()
    )
    session.done(f"Reclassified {counted(done, 'dead letter')}.")
    if done < len(changes):
        session.say(
            f"{counted(len(changes) - done, 'letter')} failed again in the meantime, with a new verdict."
        )
    return done == len(changes)


def _judged_record(item: Rejudged, redactor: Redactor) -> dict[str, Any]:
    letter, today = item.letter, item.changed
    assert today is not None, "only changed letters are shown"  # noqa: S101 - for the type checker
    return {
        **as_record(letter, ("task_id", "task", "exception_type")),
        "verdict_before": letter.verdict.value,
        "rule_before": letter.rule,
        **as_record(today, evidence=redactor.text(today.evidence)),
    }


def _judged_parts(found: Sequence[Rejudged], changed: Sequence[dict[str, Any]]) -> list[Part]:
    undecided = Counter(item.untold for item in found if item.untold)
    same = len(found) - len(changed) - sum(undecided.values())
    counts = f"{len(changed):,} with a new verdict, {same:,} unchanged, {sum(undecided.values()):,} undecided"
    columns = (Column("LETTERS", right=True, rigid=True), Column("WHY UNDECIDED", fold=True))
    return [
        table_of(_JUDGED_FIELDS, changed, "New verdicts.", _JUDGED_SHOWN),
        f"{counted(len(found), 'dead letter')}: {counts}.",
        Table(columns, [(n, why) for why, n in undecided.most_common(_JUDGED_SHOWN)]),
    ]


#: The most rows of the plan; JSON has all.
_MOVES_SHOWN = 100

_MOVED_FIELDS: Sequence[Field] = (
    (Column("GROUP", rigid=True, ids=True), lambda row: row[0].group.fingerprint),
    (Column("LETTERS", right=True, rigid=True), lambda row: row[2]),
    (Column("NEW GROUP", rigid=True, ids=True), lambda row: row[1]),
    (Column("TASK"), lambda row: last_name(row[0].group.task)),
    (Column("EXCEPTION"), lambda row: last_name(row[0].group.exception_type)),
)


@click.command("regroup")
@click.option("--dry-run", is_flag=True, help="Show which letters would move, and change nothing.")
@click.option("--detach", is_flag=True, help="Let a worker do it.")
@why_option
@yes_option
@format_option
@pass_session
def regroup(session: Session, dry_run: bool, detach: bool, why: str, yes: bool, form: str) -> None:
    """Group stored letters by today's recipe.

    The recipe is that of dlq_fingerprint, or the built-in one. A group keeps its id, status, owner, note and
    tickets. If it is interrupted, a worker with the same recipe continues it. The exit status is 4 if the
    recipe failed for some letters.
    """
    if dry_run and detach:
        raise click.UsageError("--dry-run and --detach exclude each other; give one of them.")
    regrouper = session.queue.groups.regrouper()
    total = sum(group.letters for group in session.store.regroupings.all())
    if not total:
        session.screen.emit(form, [], "There are no dead letters.")
    elif dry_run:
        _show_plan(session, regrouper, form, total)
    else:
        _regroup(session, regrouper, form, total, detach=detach, why=why, yes=yes)


def _show_plan(session: Session, regrouper: Regrouper, form: str, total: int) -> None:
    with shown_progress(session.cli, "Comparing") as show:
        fates = list(regrouper.plan(_Progress(show, total, is_plan=True)))
    rows = [(one, to, number) for one in fates for to, number in _leaving(one)]
    moved = sum(one.leaving for one in fates)
    before = sum(1 for one in fates if one.group.letters)
    after = len({to for one in fates for to in one.to})
    text = f"Would move {moved:,} of {counted(total, 'dead letter')}; {before:,} groups become {after:,}."
    records = [
        as_record(fate.group, ("fingerprint", "task", "exception_type"), letters_to=dict(fate.to))
        for fate in fates
        if fate.leaving
    ]
    table = table_of(_MOVED_FIELDS, rows, "Letters that leave their groups.", _MOVES_SHOWN)
    session.screen.emit(form, records, table, text, *_kept(regrouper))
    _end(regrouper)


def _leaving(fate: Fate) -> list[tuple[str, int]]:
    others = [item for item in fate.to.items() if item[0] != fate.group.fingerprint]
    return sorted(others, key=lambda item: (-item[1], item[0]))


def _regroup(
    session: Session,
    regrouper: Regrouper,
    form: str,
    total: int,
    *,
    detach: bool,
    why: str,
    yes: bool,
) -> None:
    question = f"Group {counted(total, 'dead letter')} again, by {regrouper.recipe}?"
    confirm(session, question, count=total, yes=yes)
    regrouper.begin(who=operator(), why=why)
    if detach:
        session.done(f"A worker with this recipe will group {counted(total, 'dead letter')} again.")
        return
    with shown_progress(session.cli, "Regrouping") as show, stopping_on_interrupt() as should_stop:
        progress = _Progress(show, total)
        is_done = regrouper.run(progress, should_stop)
    if not is_done:
        session.error(
            f"Interrupted after {counted(progress.looked, 'dead letter')}. A worker with this recipe "
            "continues."
        )
        leave(INTERRUPTED)
    text = f"Moved {progress.moved:,} of {counted(progress.looked, 'dead letter')} to other groups."
    record = {"looked_at": progress.looked, "moved": progress.moved}
    session.screen.emit(form, record, text, *_kept(regrouper))
    _end(regrouper)


class _Progress:
    """Adds up the steps of a regrouping, and shows them."""

    def __init__(self, show: OnStep, total: int, *, is_plan: bool = False) -> None:
        self._show, self._total, self._is_plan = show, total, is_plan
        self.looked = self.moved = 0

    def __call__(self, looked: int, moved: int) -> None:
        self.looked += looked
        self.moved += moved
        said = "compared" if self._is_plan else f"{self.moved:,} moved"
        self._show(Step(max(self._total, self.looked), self.looked, said, said))


def _kept(regrouper: Regrouper) -> Iterator[str]:
    """Sentences about letters that keep their groups, because the recipe could not be applied to them."""
    if number := regrouper.unknown:
        yield f"{_staying(number)}: an earlier release stored no grounds for grouping."
    if number := regrouper.failed:
        yield f"{_staying(number)}: {regrouper.recipe} {regrouper.problem}."


def _staying(number: int) -> str:
    verb, whose = ("stays", "its group") if number == 1 else ("stay", "their groups")
    return f"{counted(number, 'dead letter')} {verb} in {whose}"


def _end(regrouper: Regrouper) -> None:
    """End with another status if the recipe failed for some letters."""
    if regrouper.failed:
        leave(PARTLY)
