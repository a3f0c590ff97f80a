"""Calls a handler in this process, to show what it would do. Nothing is sent or changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from celery_dlq.model.handling import name_of
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State
from celery_dlq.upkeep.handlers.answer import Answer, Caller
from celery_dlq.upkeep.handlers.definition import Handler

if TYPE_CHECKING:
    from celery_dlq.store import Store


@dataclass(frozen=True, kw_only=True)
class HandlerTrial:
    """What a handler would do about one letter."""

    task_id: str
    task: str
    #: The name of the verdict; empty if the handler gave none.
    verdict: str
    #: The contents of the verdict, without secrets: see :class:`~celery_dlq.model.handling.Handling`.
    detail: Mapping[str, Any]
    #: Why the handler gave no verdict; otherwise empty.
    error: str


def next_ids(
    store: Store, handlers: Mapping[str, Handler], handler: Handler, limit: int
) -> Sequence[str]:
    """The letters that ``handler`` would get next."""
    earlier = []
    for other in handlers.values():
        if other.name == handler.name:
            break
        earlier.append(other.scope)
    return store.handlings.next_letters(handler.scope, earlier, limit=limit)


def dry_run(
    store: Store, caller: Caller, handler: Handler, ids: Sequence[str]
) -> Iterator[HandlerTrial]:
    """Call ``handler`` with the letters of ``ids``, one after another. Letters that are gone are left out."""
    for task_id in ids:
        letter = store.letters.get(task_id)
        if letter is None:
            continue
        answer = _tried(store, caller, handler, letter)
        yield HandlerTrial(
            task_id=letter.task_id,
            task=letter.task,
            verdict="" if answer.verdict is None else name_of(answer.verdict),
            detail=answer.detail,
            error=answer.error,
        )


def _tried(store: Store, caller: Caller, handler: Handler, letter: DeadLetter) -> Answer:
    if letter.state is not State.DEAD:
        return Answer(error=f"it is {letter.state.value}; handlers get dead letters only")
    if not _matches(store, handler, letter):
        return Answer(error="the handler's where does not match it")
    fingerprint = letter.fingerprint
    tickets = store.tickets.of_groups([fingerprint]).get(fingerprint, ())
    return caller.call(handler, letter, tickets)


def _matches(store: Store, handler: Handler, letter: DeadLetter) -> bool:
    where = handler.where
    if where.ids and letter.task_id not in where.ids:
        return False
    this = replace(where, ids=(letter.task_id,), states=frozenset({State.DEAD}))
    return bool(store.letters.find(this, limit=1).letters)
