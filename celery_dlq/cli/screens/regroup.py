"""The screens of a regrouping: which groups become which, and the decisions that are offered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from celery_dlq.cli.screens.operation import Command
from celery_dlq.cli.screens.render import Block, Column, Field, Part, last_name, table_of
from celery_dlq.model.group import Annotate, Assign, GroupAct, Ignore, Resolve
from celery_dlq.model.regrouping import Kept
from celery_dlq.regroup.following import Ended
from celery_dlq.view.text import counted
from celery_dlq.view.times import iso

#: The most rows of the table, and the most lines of offers; JSON has all.
_SHOWN = 100

_FIELDS: Sequence[Field] = (
    (Column("GROUP", rigid=True, ids=True), lambda row: row[0].fate.fingerprint),
    (Column("BECOMES", rigid=True), lambda row: row[0].fate.becomes.value),
    (Column("LETTERS", right=True, rigid=True), lambda row: row[2]),
    (Column("NEW GROUP", rigid=True, ids=True), lambda row: row[1]),
    (Column("TASK"), lambda row: last_name(row[0].group.task) if row[0].group else ""),
    (
        Column("EXCEPTION"),
        lambda row: last_name(row[0].group.exception_type) if row[0].group else "",
    ),
    (Column("FOLLOWS", fold=True), lambda row: ", ".join(sorted(row[0].fate.follows))),
)


def regroup_parts(found: Sequence[Ended], command: Command) -> list[Part]:
    """The table of groups that letters leave, and the decisions that are offered."""
    rows = [row for one in found for row in _rows(one)]
    parts: list[Part] = []
    if rows:
        more = f" The first {_SHOWN} of {len(rows):,}." if len(rows) > _SHOWN else ""
        parts.append(table_of(_FIELDS, rows[:_SHOWN], f"Groups that letters leave.{more}"))
    lines = [line for one in found for line in _lines(one, command)]
    if lines:
        more = f"\n… {len(lines) - _SHOWN:,} more lines" if len(lines) > _SHOWN else ""
        title = "These decisions stay with their groups. To make them about the new groups, run"
        parts.append(Block(title, "\n".join(lines[:_SHOWN]) + more))
    return parts


def ended_records(found: Sequence[Ended], command: Command) -> list[dict[str, Any]]:
    """The same for programs: one record for each group that letters leave."""
    return [
        {
            "fingerprint": one.fate.fingerprint,
            "task": one.group.task if one.group else "",
            "exception_type": one.group.exception_type if one.group else "",
            "becomes": one.fate.becomes.value,
            "letters_to": dict(one.fate.to),
            "letters_left": one.fate.left,
            "follows": sorted(one.fate.follows),
            "offered": list(_offers(one, command)),
            "tickets_left": [ticket.url or ticket.to for ticket in one.tickets],
        }
        for one in found
    ]


def counts_of(looked: int, moved: int, *, is_done: bool) -> str:
    """How many letters move."""
    verb = "Moved" if is_done else "Would move"
    return f"{verb} {moved:,} of {counted(looked, 'dead letter')} to other groups."


def kept_of(kept: Mapping[Kept, int], recipe: str, problem: str) -> Iterator[str]:
    """Why letters keep their groups although the recipe was not applied.

    :param problem: the first one that the recipe had, as words after its name; empty if unknown.
    """
    if number := kept.get(Kept.FRAMES, 0):
        yield (
            f"{_staying(number)}: the app frames are needed, and cannot be told from the traceback."
        )
    if number := kept.get(Kept.RECIPE, 0):
        why = f"{recipe} {problem}" if problem else f"{recipe} failed"
        yield f"{_staying(number)}: {why}."


def _staying(number: int) -> str:
    verb, whose = ("stays", "its group") if number == 1 else ("stay", "their groups")
    return f"{counted(number, 'dead letter')} {verb} in {whose}"


def _rows(one: Ended) -> Iterator[tuple[Ended, str, int]]:
    for target, number in _largest_first(one):
        yield one, target, number
    if one.fate.left:
        yield one, one.fate.fingerprint, one.fate.left


def _lines(one: Ended, command: Command) -> Iterator[str]:
    yield from _offers(one, command)
    for ticket in one.tickets:
        yield f"{one.fate.fingerprint} keeps its {ticket.kind.value}: {ticket.url or ticket.to}"


def _offers(one: Ended, command: Command) -> Iterator[str]:
    for target, _number in _largest_first(one):
        for act in one.offered:
            yield command("groups", act.name, target, *_words(act))


def _largest_first(one: Ended) -> list[tuple[str, int]]:
    return sorted(one.fate.to.items(), key=lambda item: (-item[1], item[0]))


def _words(act: GroupAct) -> Iterator[str]:
    """The words of the command line for ``act``, after the group."""
    if isinstance(act, Ignore):
        if act.until is not None:
            yield from ("--until", iso(act.until))
        if act.rate is not None:
            yield from ("--until-rate", f"{act.rate}/h")
        if act.count is not None:
            yield from ("--until-count", str(act.count))
    if isinstance(act, Resolve) and act.release:
        yield from ("--release", act.release)
    if isinstance(act, (Assign, Annotate)):
        text = act.owner if isinstance(act, Assign) else act.note
        yield from ("--", text) if text.startswith("-") else (text,)
