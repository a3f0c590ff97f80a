"""The checks of the doctor on what works without a person: workers, automatic redrives and handlers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from celery_dlq.cli.doctor.finding import Finding, Findings, Level, named
from celery_dlq.cli.session import Session
from celery_dlq.known import unknown_task
from celery_dlq.model.auto_redrive import AutoState
from celery_dlq.model.handling import may_have_letters
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.view.auto_redrives.listing import SeenAuto, seen_autos
from celery_dlq.view.text import counted

if TYPE_CHECKING:
    from celery_dlq.upkeep.handlers.definition import Handler

#: Seconds to wait for the answers of workers.
_ANSWERS_S = 2.0


def check_workers(session: Session) -> Findings:
    """Whether any worker does what is left to workers."""
    why = session.why_no_worker()
    text = why or "a worker on this broker does what is left to workers, in this store"
    yield Finding(Level.WARNING if why else Level.OK, text)


def check_auto_redrives(session: Session) -> Findings:
    """One finding for each automatic redrive, and one if no worker runs them."""
    autos = session.queue.settings.auto_redrive
    if not autos:
        return
    session.load_tasks()
    session.queue.auto_redrives  # noqa: B018 - checks the definitions against the app's tasks
    for seen in seen_autos(session.store, autos, session.store.now()):
        yield from _auto(session, seen)
    yield from _runner(session)


def check_handlers(session: Session) -> Findings:
    """One finding for each handler that may never be called, and one if all can be."""
    session.load_tasks()
    handlers: Mapping[str, Handler] = session.queue.handlers
    if not handlers:
        return
    found = [*_of_unknown_tasks(session, handlers), *_without_worker(session, handlers)]
    for text in found:
        yield Finding(Level.WARNING, text)
    if not found:
        yield Finding(
            Level.OK, f"{counted(len(handlers), 'handler')}, all known to a worker on its queue"
        )


def _auto(session: Session, seen: SeenAuto) -> Findings:
    name = seen.auto.name
    unknown = unknown_task(seen.auto.where.task, session.task_names(may_have_letters))
    if seen.stopped:
        # Only a suspension needs attention: a pause was a person's decision.
        level = Level.WARNING if seen.state is AutoState.SUSPENDED else Level.OK
        resume = session.command("auto", "resume", name)
        yield Finding(level, f"{name}: {seen.stopped}; after a fix, run: {resume}")
    if unknown:
        yield Finding(Level.WARNING, f"{name}: where: {unknown}")
    elif not _ever_matched(session, seen.auto.where):
        yield Finding(
            Level.WARNING,
            f"{name}: its where matches no letter of the store, open or closed; compare it with: "
            f"{session.command('groups')}",
        )
    elif not seen.stopped:
        yield Finding(Level.OK, f"{name}: {seen.state.value}, {counted(seen.held, 'held letter')}")


def _runner(session: Session) -> Findings:
    from celery_dlq.upkeep.auto_redrive.runner import lease_of

    lease = session.store.leases.to_do(lease_of(session.cli.app))
    if lease.lease_free_in_s <= 0:
        yield Finding(
            Level.WARNING,
            "no worker runs the automatic redrives; start a worker of this app on this broker, with the "
            "module that sets dlq_auto_redrive",
        )


def _ever_matched(session: Session, where: Filter) -> bool:
    anywhere = replace(where, states=frozenset(State))
    return bool(session.store.letters.find(anywhere, limit=1).letters)


def _of_unknown_tasks(session: Session, handlers: Mapping[str, Handler]) -> Iterator[str]:
    """The handlers whose filter names a task that the app does not have."""
    for handler in handlers.values():
        unknown = unknown_task(handler.where.task, session.task_names(may_have_letters))
        if unknown:
            yield f"{handler.name}: where: {unknown}"


def _without_worker(session: Session, handlers: Mapping[str, Handler]) -> Iterator[str]:
    """The handlers that no worker can call, each with the next step."""
    control = session.cli.app.control.inspect(timeout=_ANSWERS_S)
    queues: dict[str, Any] = control.active_queues() or {}
    consumers: dict[str, list[str]] = defaultdict(list)
    for node, consumed in queues.items():
        for queue in consumed or ():
            consumers[queue["name"]].append(node)
    statistics: dict[str, Any] = control.stats() or {} if queues else {}
    for handler in handlers.values():
        queue = handler.queue or session.queue.settings.handler_queue
        nodes = consumers[queue]
        if not nodes:
            yield f"{handler.name}: no worker consumes its queue {queue}; start one with -Q {queue}"
            continue
        without = [node for node in nodes if handler.name not in _known_to(statistics.get(node))]
        if without:
            yield (
                f"{handler.name}: {named(without)} consumes its queue, but has not imported it; import its "
                "module where the workers load it, such as in the setting imports, and restart them"
            )


def _known_to(statistics: Any) -> Mapping[str, str]:
    """The handlers that a worker has, from its statistics."""
    own = (statistics or {}).get("dlq") or {}
    found: Mapping[str, str] = own.get("handlers") or {}
    return found
