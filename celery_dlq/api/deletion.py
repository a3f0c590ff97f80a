"""The rule of deletion: closed letters by default, open ones only on request and with a reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from celery_dlq.errors import DeletionError, OpenLetters
from celery_dlq.model.states import CLOSED_STATES, DELETABLE_STATES, State
from celery_dlq.store.filter import Filter


def deletable(wanted: Filter, *, is_open: bool) -> Filter:
    """``wanted`` with the states of the letters to delete.

    :param is_open: whether open letters were asked for: dead ones, if ``wanted`` names no state.
    :raises OpenLetters: it names open states, but open letters were not asked for.
    :raises DeletionError: it names closed states, but open letters were asked for; or it names a state in
        which no letter can be deleted.
    """
    _check_deletable(wanted.states)
    if is_open:
        _check_only_open(wanted.states)
        return replace(wanted, states=wanted.states or frozenset({State.DEAD}))
    _check_only_closed(wanted.states)
    return replace(wanted, states=wanted.states or CLOSED_STATES)


def check_reason(why: str, *, is_open: bool) -> None:
    """Check that there is a reason if open letters are to be deleted.

    :raises OpenLetters: there is none.
    """
    if is_open and not why.strip():
        raise OpenLetters("Deleting open letters needs a reason, because their messages are lost.")


def _check_deletable(states: frozenset[State]) -> None:
    others = states - DELETABLE_STATES
    if others:
        raise DeletionError(
            f"Letters that are {_named(others)} cannot be deleted; only closed, dead or redriven ones can."
        )


def _check_only_open(states: frozenset[State]) -> None:
    closed = states & CLOSED_STATES
    if closed:
        raise DeletionError(
            f"Letters that are {_named(closed)} are closed; delete them apart from open ones."
        )


def _check_only_closed(states: frozenset[State]) -> None:
    still_open = states - CLOSED_STATES
    if still_open:
        raise OpenLetters(
            f"Letters that are {_named(still_open)} are open; delete them apart from closed ones, and with a "
            "reason, because their messages are lost."
        )


def _named(states: Iterable[State]) -> str:
    return " and ".join(sorted(states))
