"""Which letters an act is about, and whether its operator means it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import replace

import click

from celery_dlq.cli.exits import FAILED
from celery_dlq.cli.render import is_terminal
from celery_dlq.cli.session import Session
from celery_dlq.errors import UnknownGroup
from celery_dlq.states import State
from celery_dlq.store.base import Filter


def select(session: Session, ids: Sequence[str], wanted: Filter, *, everything: bool) -> Filter:
    """The letters that ids, filters or ``--all`` name.

    :raises click.UsageError: they name none, or contradict each other.
    :raises UnknownLetter: no letter has one of the ids.
    :raises UnknownGroup: nothing has the fingerprint.
    :raises AmbiguousId: several letters have one of the ids, or several groups the fingerprint.
    """
    # The state that letters are in anyway narrows nothing down.
    is_default = wanted.states == {State.DEAD}
    named = bool(ids) or (replace(wanted, states=frozenset()) if is_default else wanted).restricts
    if everything and named:
        raise click.UsageError("--all contradicts ids and filters; leave one of them out.")
    if not everything and not named:
        raise click.UsageError("Name ids or filters, or say --all for every letter.")
    if wanted.group:
        _check_group(session, wanted.group)
    return replace(wanted, ids=tuple(dict.fromkeys(map(session.full_id, ids))))


def of_operation(session: Session, wanted: Filter, beginning: str | None) -> Filter:
    """``wanted``, narrowed to the letters of the operation whose id begins so, if any is named.

    :raises UnknownOperation: there is none.
    :raises AmbiguousId: there are several.
    """
    if beginning is None:
        return wanted
    return replace(wanted, operation=session.operation(beginning).id)


def _check_group(session: Session, beginning: str) -> None:
    # A list may well show several groups; an act is about the one that was meant.
    try:
        session.fingerprint(beginning)
    except UnknownGroup:
        # Parked retries have a fingerprint, and are in no group.
        if not session.store.count(Filter(group=beginning, states=frozenset({State.PARKED}))):
            raise


def left_alone(session: Session, wanted: Filter, takeable: Collection[State]) -> int:
    """Name the letters that were asked for by id and are in none of the states ``takeable``; returns
    how many there are."""
    if not wanted.ids:
        return 0
    others = Filter(ids=wanted.ids, states=frozenset(State) - frozenset(takeable))
    found = list(session.letters(others))
    for letter in found:
        see = session.command("show", letter.task_id)
        session.cli.error(f"{letter.task_id} is {letter.state.value} and left alone; see: {see}")
    return len(found)


def confirm(session: Session, question: str, *, count: int, yes: bool) -> None:
    """Ask before an act on more than one letter, unless ``yes`` answered already.

    :raises click.UsageError: nobody is there to ask.
    """
    if yes or count <= 1:
        return
    if not is_terminal(sys.stdin):
        raise click.UsageError(f"{question} Without a terminal to confirm it on, add --yes.")
    if not click.confirm(question, err=True):
        session.cli.error("Nothing was changed.")
        click.get_current_context().exit(FAILED)
