"""Letters by today's rules: which would be judged otherwise, and storing that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from celery_dlq.cli.exits import DONE, FAILED, PARTLY
from celery_dlq.cli.options import filters, format_option, selection_options
from celery_dlq.cli.progress import Step, shown_progress
from celery_dlq.cli.render import Column, Part, Short, Table
from celery_dlq.cli.selection import confirm, left_alone, select
from celery_dlq.cli.session import Session, operator
from celery_dlq.states import State
from celery_dlq.store.base import Filter, NewVerdict
from celery_dlq.view import times
from celery_dlq.view.text import counted, last_part, short_ids

if TYPE_CHECKING:
    from celery_dlq.classify import Rejudged

_STATES = (State.DEAD, State.REDRIVEN)

#: Letters, and reasons why others cannot be told, that a terminal is shown.
_SHOWN = 50

_COLUMNS = (
    Column("ID", rigid=True),
    Column("TASK"),
    Column("EXCEPTION"),
    Column("WAS", rigid=True),
    Column("BY"),
    Column("IS NOW", rigid=True),
    Column("BY", fold=True),
)


@click.command("reclassify")
@filters(states=_STATES)
@click.option("--dry-run", is_flag=True, help="Show what would change and change nothing.")
@selection_options
@format_option
@click.pass_obj
def reclassify(
    cli: Any,
    ids: Sequence[str],
    everything: bool,
    yes: bool,
    wanted: Filter,
    dry_run: bool,
    form: str,
) -> None:
    """Judge stored letters by today's rules.

    Changes verdict, rule, evidence and path; a letter keeps its state, and the reason it died of. Judged
    is what is stored: type, message, causes, and the code that the evidence names. Letters whose
    judgement rests on something else are counted and left as they are.
    """
    session = Session(cli)
    session.load_tasks()
    wanted = select(session, ids, wanted, everything=everything)
    wanted = replace(wanted, states=wanted.states or frozenset({State.DEAD}))
    failed = left_alone(session, wanted, wanted.states) > 0
    found = _judge(session, wanted)
    changed = [item for item in found if item.changed is not None]
    session.screen.emit(form, [*map(_record, changed)], *_parts(found, changed))
    if changed and not dry_run:
        _store(session, wanted, changed, yes=yes)
    click.get_current_context().exit((PARTLY if found else FAILED) if failed else DONE)


def _judge(session: Session, wanted: Filter) -> list[Rejudged]:
    total, found = session.store.count(wanted), []
    with shown_progress(session.cli, "Judging") as show:
        for item in session.queue.rejudge(wanted):
            found.append(item)
            show(Step(total, len(found), "", "judged"))
    return found


def _store(session: Session, wanted: Filter, changed: Sequence[Rejudged], *, yes: bool) -> None:
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
    done = session.store.reclassify(changes, wanted=wanted, who=operator(), now=times.utc_now())
    session.done(f"Reclassified {counted(done, 'dead letter')}.")
    if done < len(changes):
        session.say(
            f"{len(changes) - done:,} failed again meanwhile, and are as they were judged then."
        )


def _record(item: Rejudged) -> dict[str, Any]:
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
        "evidence": today.evidence,
        "path": today.path,
    }


def _parts(found: Sequence[Rejudged], changed: Sequence[Rejudged]) -> list[Part]:
    untold = Counter(item.untold for item in found if item.untold)
    same = len(found) - len(changed) - sum(untold.values())
    counts = (
        f"{len(changed):,} judged otherwise, {same:,} as before, {sum(untold.values()):,} not told"
    )
    parts: list[Part] = [_table(changed)] if changed else []
    parts.append(f"{counted(len(found), 'dead letter')}: {counts}.")
    if untold:
        columns = (Column("LETTERS", right=True, rigid=True), Column("NOT TOLD", fold=True))
        parts.append(Table(columns, [(n, why) for why, n in untold.most_common(_SHOWN)]))
    return parts


def _table(changed: Sequence[Rejudged]) -> Table:
    shown = changed[:_SHOWN]
    records = [*map(_record, shown)]
    ids = short_ids([record["task_id"] for record in records])
    rows = [
        (
            Short(short, record["task_id"]),
            Short(last_part(record["task"]), record["task"]),
            Short(last_part(record["exception_type"]), record["exception_type"]),
            record["verdict_before"],
            record["rule_before"],
            record["verdict"],
            record["rule"],
        )
        for short, record in zip(ids, records, strict=True)
    ]
    more = f" The first {_SHOWN} of {len(changed):,}." if len(changed) > _SHOWN else ""
    return Table(_COLUMNS, rows, title=f"Judged otherwise.{more}")
