"""The checks of the doctor on the app's settings, its tasks, and what works without a person."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from celery_dlq.base.known import near_names, unknown_name, unknown_task
from celery_dlq.cli.doctor import Finding, Findings, Level, named, ok, warning, worker_facts
from celery_dlq.cli.doctor.broker import answers_of_workers, no_remote_control
from celery_dlq.cli.session import Session
from celery_dlq.errors import page
from celery_dlq.model.automation import AutoState
from celery_dlq.model.handling import may_have_letters
from celery_dlq.model.route import Route, names_task
from celery_dlq.model.states import Reason, State
from celery_dlq.redrive.letter.functions import functions_of
from celery_dlq.store.base import PARKED_OVERDUE_S, Filter, UnsentAt
from celery_dlq.view.automations import AutoWithStatus, autos_with_status
from celery_dlq.view.text import counted
from celery_dlq.view.times import duration
from celery_dlq.worker.uncaptured import Gap, dlq_tasks, gaps, other_tasks, own_senders

if TYPE_CHECKING:
    from celery_dlq.upkeep.automation.definition import Handler


#: The reasons of letters whose tasks need not be the app's.
_FROM_ELSEWHERE = frozenset({Reason.UNKNOWN_TASK, Reason.MALFORMED, Reason.INGESTED})

#: Open circuits that are listed.
_NAMED_CIRCUITS = 10


def check_settings(session: Session) -> Findings:
    session.queue.settings  # noqa: B018 - reading validates them
    yield ok("every dlq_* setting is valid")


def check_tasks(session: Session) -> Findings:
    session.load_tasks()
    ours, others = dlq_tasks(session.cli.app), other_tasks(session.cli.app)
    if ours:
        yield ok(f"{counted(len(ours), 'task')} with base=DLQTask")
        if others:
            yield ok(f"{named(task.name for task in others)}: another base class, so not captured")
    else:
        yield warning(
            "no task uses DLQTask, so nothing is captured; write @app.task(base=DLQTask), or check that "
            "-A names the app that defines the tasks"
        )
    own = own_senders(session.cli.app)
    if own:
        yield ok(
            f"{named(own)}: retries pass through an apply_async() of your own; one that it does not send "
            f"becomes a letter at once: {page('adopt-in-an-existing-project')}"
        )
    for task in functions_of(session.cli.app).upgrades:
        if task not in session.cli.app.tasks:
            said = unknown_name("a task of this app", task, session.task_names())
            yield warning(f"@dlq.upgrade names another task: {said}")


def check_default_queue(session: Session) -> Findings:
    """Whether workers read the default queue."""
    conf, known = session.cli.app.conf, session.cli.app.amqp.queues
    if conf.task_queues and conf.task_default_queue not in known:
        yield warning(
            f"task_queues does not have the default queue, {conf.task_default_queue}, so a worker without -Q "
            "does not read it, and messages without a route wait there for ever; add it, or set "
            f"task_default_queue to one of {named(known)}"
        )


def check_queues(session: Session) -> Findings:
    """Whether workers read the queues that the app sends to."""
    session.load_tasks()
    app = session.cli.app
    consumers = {} if no_remote_control(app) else _consumers(app)
    unread = sorted(sent_to(app) - consumers.keys())
    if consumers and unread:
        yield warning(
            f"no worker that answers reads {named(unread)}, so messages that this app sends there wait; "
            f"start one with -Q {','.join(unread)}, or correct the route"
        )


def sent_to(app: Any) -> set[str]:
    """The queues that the app can send to, as far as its settings and tasks say, and the default queue."""
    router = app.amqp.router
    given: list[Any] = [app.conf.task_default_queue, *app.amqp.queues.values()]
    for route in router.routes:
        given += [*getattr(route, "map", {}).values(), *getattr(route, "patterns", {}).values()]
    given += [entry.get("options") or {} for entry in app.conf.beat_schedule.values()]
    for task in app.tasks.values():
        with contextlib.suppress(Exception):  # a router may need the arguments of a call
            own = {"queue": getattr(task, "queue", None)}
            given.append(router.route(own, task.name, task_type=task))
    queues = (to.get("queue") if isinstance(to, Mapping) else to for to in given)
    # The name of a broadcast queue, which has an alias, differs in each process.
    return {
        str(getattr(one, "name", one)) for one in queues if one and not getattr(one, "alias", None)
    }


def check_rules(session: Session) -> Findings:
    session.queue.check_rules()
    yield ok("every exception named by a rule exists")


def check_hooks(session: Session) -> Findings:
    session.queue.hooks.check()
    yield ok("every hook named by a setting exists")


def check_fingerprints(session: Session) -> Findings:
    recipe = session.queue.groups.regrouper().recipe
    yield ok(f"failures are grouped by {recipe}")
    for other, number in sorted(session.store.regroupings.waiting().items()):
        if other not in ("", recipe):
            yield warning(
                f"{counted(number, 'group')} wait for the recipe {other}, which this app does not have; to "
                "apply the one that it has: celery -A <app> dlq groups regroup"
            )
    folded = session.store.regroupings.folded()
    if folded:
        yield warning(
            f"{counted(len(folded), 'place')} in the code made too many groups, which were folded into one: "
            f"{named(folded)}; write a recipe (dlq_fingerprint), or undo it: celery -A <app> dlq groups "
            "split GROUP"
        )


def check_routes(session: Session) -> Findings:
    session.load_tasks()
    settings, tasks = session.queue.settings, session.task_names(may_have_letters)
    known = {route.name for route in settings.routes}
    wheres = {
        **{f"automatic redrive {auto.name}": auto.where for auto in settings.auto_redrive},
        **{f"handler {name}": one.where for name, one in session.queue.handlers.items()},
    }
    found = [
        *(
            f"route {route.name}: {why}"
            for route in settings.routes
            for why in _unmet(route, tasks)
        ),
        *(
            f"{subject} takes letters of route {where.route!r}, which dlq_routes does not have; correct "
            "one of the names"
            for subject, where in wheres.items()
            if where.route and where.route not in known
        ),
    ]
    yield from map(warning, found)
    if settings.routes and not found:
        yield ok(f"{counted(len(known), 'route')}")


def _unmet(route: Route, tasks: Sequence[str]) -> Iterator[str]:
    """The tasks of a route that the app does not have, so that no letter of them can come."""
    if _FROM_ELSEWHERE.intersection(route.reason):
        return
    for given in route.task:
        if not any(names_task(given, task) for task in tasks):
            near = near_names(given.rstrip("*"), tasks)
            meant = f" did you mean {near[0]!r}?" if near else ""
            yield f"this app has no task {given!r};{meant or ' correct the name, or remove the route'}"


def check_capture(session: Session) -> Findings:
    found: dict[Gap, list[str]] = {}
    for gap in gaps(session.cli.app):
        found.setdefault(replace(gap, task=""), []).append(gap.task)
    for gap, tasks in found.items():
        level = Level.ERROR if gap.loses_letters else Level.WARNING
        yield Finding(level, f"{named(tasks)}: {gap.why}")


def check_parked(session: Session) -> Findings:
    retries = Filter(
        states=frozenset({State.PARKED}), without_reasons=frozenset({Reason.UNSENT})
    )  # fmt: skip
    waiting = session.store.counts.letters(retries)
    late = session.store.parked.overdue()
    if late:
        yield warning(
            f"{counted(late, 'parked retry', 'parked retries')} should have run at least "
            f"{duration(PARKED_OVERDUE_S)} ago: no worker runs on the broker where they were parked, or "
            "it cannot send them; start one and read its log, or let a worker of this app send them: "
            f"{session.command('unpark', '--all')}"
        )
    else:
        yield ok(f"{counted(waiting, 'parked retry', 'parked retries')}, none overdue")


def check_unsent(session: Session) -> Findings:
    """Whether messages that the broker does not take are kept, and whether those that were kept are sent."""
    session.load_tasks()
    app, queue = session.cli.app, session.queue
    for waiting in session.store.parked.unsent():
        yield _unsent(session, waiting)
    modes = {queue.settings.unsent, *(task.dlq_unsent for task in dlq_tasks(app))} - {"raise"}
    if not modes:
        return
    yield ok(
        f"messages that the broker does not take are kept, for workers on the broker {queue.hold.place}; run "
        "doctor where they are sent, too, with the environment of the web server: it must name the same "
        "broker, and reach the store and a spool"
    )
    others = other_tasks(app)
    if others and queue.settings.unsent in modes:
        yield warning(
            f"{named(task.name for task in others)}: another base class, so if it is unknown whether the "
            f"broker has taken a message, it may run twice: {page('unsent')}"
        )


def _unsent(session: Session, waiting: UnsentAt) -> Finding:
    """The messages that wait for one broker."""
    waited_s = (session.store.now() - waiting.since).total_seconds()
    many = counted(waiting.messages, "unsent message")
    if waited_s < PARKED_OVERDUE_S:
        return ok(f"{many} will be sent to the broker {waiting.place}")
    since = f"the first of them not sent for {duration(waited_s)}"
    if waiting.place == session.queue.hold.place:
        why = "the broker does not take them, or no worker on it runs; see the checks broker and workers"
        return warning(f"{many}, {since}: {why}")
    return warning(
        f"{many} for the broker {waiting.place}, {since}: workers of this app send to the broker "
        f"{session.queue.hold.place}; set the same broker_url where messages are sent, and let workers of "
        f"this app send these: {session.command('unpark', '--reason', 'unsent')}"
    )


def check_circuits(session: Session) -> Findings:
    seen = session.store.circuits.read_open()
    for circuit in seen.circuits[:_NAMED_CIRCUITS]:
        age = duration((seen.now - (circuit.opened_at or seen.now)).total_seconds())
        yield warning(
            f"the circuit of {circuit.name} has been open for {age}: {circuit.failures} transient failures, "
            f"{counted(circuit.probes, 'failed probe')}; its messages are parked until a probe succeeds"
        )
    more = len(seen.circuits) - _NAMED_CIRCUITS
    if more > 0:
        yield warning(f"{counted(more, 'more circuit')} not closed")
    if not seen.circuits:
        yield ok("none is open")


def check_automations(session: Session) -> Findings:
    """What the settings and the code say about automatic redrives and handlers: whether each can run, and
    letters of its task can come."""
    from celery_dlq.upkeep.automation.conditions import check_definitions

    session.load_tasks()
    tasks = session.task_names(may_have_letters)
    check_definitions(session.cli.app, session.queue.settings, session.queue.handlers)
    for one in session.queue.all_automations:
        if unknown := unknown_task(one.where.task, tasks):
            yield warning(f"{one.name}: where: {unknown}")


def check_auto_redrives(session: Session) -> Findings:
    """One finding for each automatic redrive, and one if no worker runs them."""
    from celery_dlq.upkeep.automation.engine import lease_of

    autos = session.queue.settings.auto_redrive
    if not autos:
        return
    session.load_tasks()
    session.queue.automations  # noqa: B018 - checks the definitions against the app's tasks
    for seen in autos_with_status(session.store, autos, session.store.now()):
        yield from _auto(session, seen)
    if session.store.leases.to_do(lease_of(session.cli.app)).lease_free_in_s <= 0:
        yield warning(
            "no worker runs the automatic redrives; start a worker of this app on this broker, with the "
            "module that sets dlq_auto_redrive"
        )


def check_handlers(session: Session) -> Findings:
    """One finding for each handler that no worker can call, and one if all can be called."""
    session.load_tasks()
    handlers: Mapping[str, Handler] = session.queue.handlers
    if not handlers or no_remote_control(session.cli.app):
        return
    found = [*_without_worker(session, handlers)]
    yield from map(warning, found)
    if not found:
        yield ok(f"{counted(len(handlers), 'handler')}, all known to a worker on its queue")


def _auto(session: Session, seen: AutoWithStatus) -> Findings:
    name, anywhere = seen.auto.name, replace(seen.auto.where, states=frozenset(State))
    if seen.stopped:
        # Only a suspension needs attention: a pause was a person's decision.
        level = Level.WARNING if seen.state is AutoState.SUSPENDED else Level.OK
        resume = session.command("auto", "resume", name)
        yield Finding(level, f"{name}: {seen.stopped}; after a fix, run: {resume}")
    if not session.store.letters.find(anywhere, limit=1).letters:
        yield warning(
            f"{name}: its where matches no letter of the store, open or closed; compare it with: "
            f"{session.command('groups')}"
        )
    elif not seen.stopped:
        yield ok(f"{name}: {seen.state.value}, {counted(seen.held, 'held letter')}")


def _without_worker(session: Session, handlers: Mapping[str, Handler]) -> Iterator[str]:
    """The handlers that no worker can call, each with the next step."""
    app = session.cli.app
    consumers = _consumers(app)
    statistics = answers_of_workers(app, "stats")[0] if consumers else {}
    for handler in handlers.values():
        queue = handler.queue or session.queue.settings.handler_queue
        nodes = consumers.get(queue)
        if not nodes:
            yield f"{handler.name}: no worker consumes its queue {queue}; start one with -Q {queue}"
            continue
        without = [
            node
            for node in nodes
            if handler.name not in worker_facts(statistics.get(node), "handlers")
        ]
        if without:
            yield (
                f"{handler.name}: {named(without)} consumes its queue, but has not imported it; import its "
                "module where the workers load it, such as in the setting imports, and restart them"
            )


def _consumers(app: Any) -> Mapping[str, list[str]]:
    """The nodes of the workers that answer, by the queues that they read."""
    found: dict[str, list[str]] = defaultdict(list)
    for node, queues in answers_of_workers(app, "active_queues")[0].items():
        for queue in queues or ():
            found[queue["name"]].append(node)
    return found
