"""Select the letters of a command, and ask for confirmation."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection
from dataclasses import replace

import click

from celery_dlq.base.known import unknown_name
from celery_dlq.cli.exits import DONE, FAILED, PARTLY, leave
from celery_dlq.cli.options import Chosen
from celery_dlq.cli.screens.letter import letter_table, next_step
from celery_dlq.cli.screens.render import is_terminal
from celery_dlq.cli.session import Session
from celery_dlq.errors import (
    AmbiguousId,
    CeleryDLQError,
    FilterError,
    UnknownGroup,
    UnknownRoute,
    UnknownTask,
)
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.view import lookup, times
from celery_dlq.view.text import counted, last_part

#: Letters shown as examples before a confirmation.
_EXAMPLES = 10

#: The fields of a filter whose names only letters know.
_REMARKED = frozenset({"exception", "queue", "release"})

#: The noun for the letters of a command, singular and plural.
Things = tuple[str, str]
LETTERS: Things = ("dead letter", "dead letters")


def select(
    session: Session, chosen: Chosen, wanted: Filter, states: Collection[State] = ()
) -> Filter:
    """The letters that ids, filters or ``--all`` select.

    :param states: the states of the letters, unless the filters name some.
    :raises click.UsageError: nothing is selected, or the options contradict each other.
    :raises UnknownLetter: an id is unknown.
    :raises UnknownGroup: the fingerprint is unknown.
    :raises UnknownTask: neither the app nor a letter has this task.
    :raises UnknownRoute: neither the settings nor a letter has this route.
    :raises AmbiguousId: several letters match an id, or several groups the fingerprint.
    """
    # Letters are dead by default, so --state dead alone restricts nothing.
    is_default = wanted.states == {State.DEAD}
    named = (
        bool(chosen.ids)
        or (replace(wanted, states=frozenset()) if is_default else wanted).restricts
    )
    if chosen.everything and named:
        raise click.UsageError("--all contradicts ids and filters; use one or the other.")
    if not chosen.everything and not named:
        raise click.UsageError("Give ids or filters, or --all for every letter.")
    if wanted.group:
        # A command that changes letters needs exactly one group.
        _check_group(session, wanted.group)
    wanted = checked(session, replace(wanted, states=wanted.states or frozenset(states)))
    if chosen.ids:
        return replace(wanted, ids=tuple(dict.fromkeys(map(session.full_id, chosen.ids))))
    return _frozen(session, wanted)


def _frozen(session: Session, wanted: Filter) -> Filter:
    """``wanted`` without letters that fail from now on, so that the act is on the letters that the person
    confirms."""
    every = replace(wanted, states=frozenset(State))
    until = session.store.until_now(every, now=session.store.now())
    # Nothing matches a --since in the future.
    return wanted.before(until) if wanted.since is None or wanted.since < until else wanted


def checked(session: Session, wanted: Filter) -> Filter:
    """``wanted``, whose arguments are also found in the positions that the app's tasks give them, and by what
    stands for secrets. Its operation has its whole id. Its group, task and route exist: a misspelt name
    matches no letter, which would look like good news.

    :raises UnknownOperation: no operation matches.
    :raises AmbiguousId: several operations match.
    :raises UnknownGroup: the fingerprint is unknown.
    :raises UnknownTask: neither the app nor a letter has this task.
    :raises UnknownRoute: neither the settings nor a letter has this route.
    :raises FilterError: it asks for values that are not kept, or for redacted arguments that cannot be found;
        or a text has a secret.
    """
    if wanted.operation:
        wanted = replace(wanted, operation=session.operation(wanted.operation).id)
    _check_names(session, wanted)
    _remark_names(session, wanted)
    wanted = lookup.hash_secret_arguments(session.queue.redactor, wanted)
    if wanted.args:
        # Without the worker's code, only the names in the messages are known.
        with contextlib.suppress(CeleryDLQError):
            session.load_tasks()
        wanted = lookup.with_positions(session.cli.app, wanted)
    if wanted.asks_for_values:
        _check_values(session)
    return wanted


def _check_names(session: Session, wanted: Filter) -> None:
    if wanted.group:
        # A list may show several groups.
        with contextlib.suppress(AmbiguousId):
            _check_group(session, wanted.group)
    if wanted.task:
        _check_task(session, wanted.task)
    if wanted.route:
        _check_route(session, wanted.route)


def _remark_names(session: Session, wanted: Filter) -> None:
    """Say which name may be meant if no letter has the given one. That is not an error: letters with it may
    come."""
    for said in lookup.unknown_names(session.store, wanted, _REMARKED):
        session.say(said)


def _check_values(session: Session) -> None:
    kept = session.store.values.kept()
    if not kept.are_kept:
        raise FilterError(lookup.NOT_KEPT)
    if kept.since:
        session.say(
            f"Letters that first failed on {times.iso(kept.since)} or before may be missing: their values "
            "are not kept yet. Workers add them in the background."
        )


def _check_task(session: Session, name: str) -> None:
    every = frozenset(State)
    if session.store.letters.find(Filter(task=name, states=every), limit=1).letters:
        return
    try:
        session.load_tasks()
    except CeleryDLQError:
        # Without the worker's code, only the letters name tasks.
        return
    tasks = sorted(
        {*session.task_names(), *session.store.monitoring.stats(session.screen.now).by_task}
    )
    if name not in tasks and name not in map(last_part, tasks):
        raise UnknownTask(unknown_name("a task of this app or of a letter", name, tasks))


def _check_route(session: Session, name: str) -> None:
    routes = [route.name for route in session.queue.settings.routes]
    if name in routes:
        return
    every = frozenset(State)
    if not session.store.letters.find(Filter(route=name, states=every), limit=1).letters:
        routes += sorted(session.store.monitoring.measures().routes)
        raise UnknownRoute(unknown_name("a route of dlq_routes or of a letter", name, routes))


def _check_group(session: Session, beginning: str) -> None:
    try:
        session.fingerprint(beginning)
    except UnknownGroup:
        # Parked retries have a fingerprint but belong to no group.
        if not session.store.counts.letters(
            Filter(group=beginning, states=frozenset({State.PARKED}))
        ):
            raise


def left_alone(session: Session, wanted: Filter, takeable: Collection[State]) -> int:
    """Report letters given by id whose state is not among ``takeable``; returns how many there are."""
    if not wanted.ids:
        return 0
    others = Filter(ids=wanted.ids, states=frozenset(State) - frozenset(takeable))
    found = list(session.letters(others))
    for letter in found:
        step = next_step(letter, session.command)
        session.error(f"{letter.task_id} is {letter.state.value} and left alone. Next: {step}")
    return len(found)


def confirm_act(
    session: Session,
    question: str,
    wanted: Filter,
    chosen: Chosen,
    *,
    things: Things = LETTERS,
    can_be_undone: bool = True,
) -> bool:
    """Count the letters, show examples and ask; ends the command if nothing matches, and with ``--dry-run``.
    Returns whether letters given by id are left alone.

    :param question: with ``{}`` in place of the letters.
    :param can_be_undone: otherwise it also asks about a single letter.
    """
    failed = left_alone(session, wanted, wanted.states) > 0
    count = session.store.counts.letters(wanted)
    if not count:
        if not failed:
            session.screen.show(f"No {things[1]} match.")
        leave(FAILED if failed or wanted.ids else DONE)
    if chosen.dry_run:
        _show_some(session, wanted, count)
        session.done(
            f"{question.format(counted(count, *things))} This is a dry run; nothing was changed."
        )
        leave(PARTLY if failed else DONE)
    asks = not chosen.yes and (count > 1 or not can_be_undone)
    if asks:
        _show_some(session, wanted, count)
        _ask(session, question.format(counted(count, *things)))
        _check_same(session, wanted, count, things)
    return failed


def _check_same(session: Session, wanted: Filter, count: int, things: Things) -> None:
    """End the command if more letters match than the person has confirmed: some have changed their state."""
    now = session.store.counts.letters(wanted)
    if now > count:
        session.error(
            f"{counted(now, *things)} match now, more than you confirmed. Nothing was changed; run the "
            "command again."
        )
        leave(FAILED)


def _show_some(session: Session, wanted: Filter, count: int) -> None:
    found = session.store.letters.find(wanted, limit=_EXAMPLES).letters
    more = [f"… and {counted(count - len(found), *LETTERS)} more"] if count > len(found) else []
    session.screen.show(letter_table(found), *more)


def confirm(session: Session, question: str, *, count: int, yes: bool) -> None:
    """Ask before changing more than one letter, unless ``yes`` is set.

    :raises click.UsageError: there is no terminal to ask on.
    """
    if not yes and count > 1:
        _ask(session, question)


def _ask(session: Session, question: str) -> None:
    if not is_terminal(sys.stdin):
        raise click.UsageError(f"{question} There is no terminal to confirm on; add --yes.")
    if not click.confirm(question, err=True):
        session.error("Nothing was changed.")
        leave(FAILED)
