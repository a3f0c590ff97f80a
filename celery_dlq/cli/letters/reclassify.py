"""``dlq reclassify``: judges stored letters by today's rules, and stores new verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from celery_dlq.cli.exits import DONE, FAILED, PARTLY, leave
from celery_dlq.cli.options import Chosen, filters, format_option, selection_options
from celery_dlq.cli.screens.parts import Column, Field, Part, Table, last_name, table_of
from celery_dlq.cli.screens.progress import Step, shown_progress
from celery_dlq.cli.selection import confirm, left_alone, select
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter, NewVerdict
from celery_dlq.view import times
from celery_dlq.view.text import counted

if TYPE_CHECKING:
    from celery_dlq.classify import Rejudged
    from celery_dlq.redact import Redactor

_STATES = (State.DEAD, State.REDRIVEN)

#: The most rows of each table: changed letters, and reasons why others cannot be judged.
_SHOWN = 50

_FIELDS: Sequence[Field] = (
    (Column("ID", rigid=True, ids=True), lambda record: record["task_id"]),
    (Column("TASK"), lambda record: last_name(record["task"])),
    (Column("EXCEPTION"), lambda record: last_name(record["exception_type"])),
    (Column("WAS", rigid=True), lambda record: record["verdict_before"]),
    (Column("BY"), lambda record: record["rule_before"]),
    (Column("IS NOW", rigid=True), lambda record: record["verdict"]),
    (Column("BY", fold=True), lambda record: record["rule"]),
)


@click.command("reclassify")
@filters(states=_STATES)
@click.option("--dry-run", is_flag=True, help="Show the changes and store nothing.")
@selection_options
@format_option
@pass_session
def reclassify(session: Session, chosen: Chosen, wanted: Filter, dry_run: bool, form: str) -> None:
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
    rows = [_record(item, redactor) for item in changed]
    session.screen.emit(form, rows, *_parts(found, rows))
    is_whole = dry_run or not changed or _store(session, wanted, changed, yes=chosen.yes)
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


def _record(item: Rejudged, redactor: Redactor) -> dict[str, Any]:
    letter, today = item.letter, item.changed
    assert today is not None, "only changed letters are shown"  # noqa: S101 - for the type checker
    return {
        "task_id": letter.task_id,
        "task": letter.task,
        "exception_type": letter.exception_type,
        "verdict_before": letter.verdict.value,
        "rule_before": letter.rule,
        "verdict": today.verdict.value,
        "rule": today.rule,
        "evidence": redactor.text(today.evidence),
        "path": today.path,
    }


def _parts(found: Sequence[Rejudged], changed: Sequence[dict[str, Any]]) -> list[Part]:
    undecided = Counter(item.untold for item in found if item.untold)
    same = len(found) - len(changed) - sum(undecided.values())
    counts = f"{len(changed):,} with a new verdict, {same:,} unchanged, {sum(undecided.values()):,} undecided"
    parts: list[Part] = [_table(changed)] if changed else []
    parts.append(f"{counted(len(found), 'dead letter')}: {counts}.")
    if undecided:
        columns = (Column("LETTERS", right=True, rigid=True), Column("WHY UNDECIDED", fold=True))
        parts.append(Table(columns, [(n, why) for why, n in undecided.most_common(_SHOWN)]))
    return parts


def _table(changed: Sequence[dict[str, Any]]) -> Table:
    more = f" The first {_SHOWN} of {len(changed):,}." if len(changed) > _SHOWN else ""
    return table_of(_FIELDS, changed[:_SHOWN], f"New verdicts.{more}")
