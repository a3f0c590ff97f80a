"""Compares the day's orders with the results and the dead-letter store, and reports every
difference."""

from collections.abc import Sequence
from datetime import datetime

from celery_dlq import DeadLetter, Filter, State
from celery_dlq.store.sql import SQLStore
from example_project.celery_app import app
from example_project.day import Placed


def unsettled(placed: Sequence[Placed], store: SQLStore) -> list[str]:
    """A sentence for each order that has not ended as expected of release 1: done, or dead with its
    reason."""
    said = [
        _not_done(order) if order.dies_at is None else _not_dead(order, store) for order in placed
    ]
    return [sentence for sentence in said if sentence]


def unresolved(placed: Sequence[Placed], store: SQLStore) -> list[str]:
    """A sentence for each letter that is not resolved, and each result that is not right."""
    said = [_not_resolved(order, store) or _not_done(order) for order in placed]
    return [sentence for sentence in said if sentence]


def unexpected(placed: Sequence[Placed], store: SQLStore, since: datetime) -> list[str]:
    """A sentence for each letter that no order accounts for.

    :param since: when the demo began.
    """
    known = {order.dies_at for order in placed}
    page = store.letters.find(Filter(states=frozenset(State), since=since), limit=500)
    return [
        f"{letter.task_id}: a letter of {letter.task} that should not be ({letter.message})"
        for letter in page.letters
        if letter.task_id not in known
    ]


def letters_of(placed: Sequence[Placed], store: SQLStore) -> list[DeadLetter]:
    """The letters that the orders became."""
    found = (store.letters.get(order.dies_at) for order in placed if order.dies_at)
    return [letter for letter in found if letter is not None]


def _not_done(order: Placed) -> str:
    result = app.AsyncResult(order.task_id)
    if not result.successful():
        return f"{order.name}: its result is {result.state}"
    if result.result != order.comes_to:
        return f"{order.name}: came to {result.result!r} instead of {order.comes_to!r}"
    return ""


def _not_dead(order: Placed, store: SQLStore) -> str:
    letter = store.letters.get(str(order.dies_at))
    if letter is None:
        return f"{order.name}: no letter"
    if (letter.state, letter.reason) != (State.DEAD, order.dies_of):
        return f"{order.name}: its letter is {letter.state.value}, {letter.reason.value}"
    return ""


def _not_resolved(order: Placed, store: SQLStore) -> str:
    if order.dies_at is None:
        return ""
    letter = store.letters.get(order.dies_at)
    if letter is None:
        return f"{order.name}: no letter"
    return (
        ""
        if letter.state is State.RESOLVED
        else f"{order.name}: its letter is {letter.state.value}"
    )
