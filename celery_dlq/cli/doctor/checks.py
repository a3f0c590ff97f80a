"""The checks of ``celery dlq doctor``: each examines one part and names the next step."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from celery_dlq.cli.doctor import (
    acknowledgement,
    keeping,
    pooler,
    recorder,
    replica,
    servers,
    stalled,
    taking,
    unattended,
)
from celery_dlq.cli.doctor.finding import (
    BROKER_TIMEOUT_S,
    Finding,
    Findings,
    Level,
    named,
    password_shown,
    why_not_writable,
)
from celery_dlq.cli.exits import for_app, one_line
from celery_dlq.cli.session import Session
from celery_dlq.errors import CeleryDLQError
from celery_dlq.known import near_names
from celery_dlq.model.handling import may_have_letters
from celery_dlq.model.route import Route, names_task
from celery_dlq.model.states import Reason, State
from celery_dlq.settings import STORE_URL_VARIABLE
from celery_dlq.spool import FileState, Spool, exposed_files, is_exposed, is_shared, look
from celery_dlq.store.base import Filter
from celery_dlq.store.skew import why_wrong
from celery_dlq.view.text import counted
from celery_dlq.view.times import duration
from celery_dlq.worker.uncaptured import Gap, dlq_tasks, gaps, other_tasks

#: Seconds after which a parked retry is overdue. By then a dead worker's lease and an interrupted release
#: have expired twice.
_OVERDUE_S = 180

#: The reasons of letters whose tasks need not be the app's.
_FROM_ELSEWHERE = frozenset({Reason.UNKNOWN_TASK, Reason.MALFORMED, Reason.INGESTED})

#: Open circuits that are listed.
_NAMED_CIRCUITS = 10


def examine(session: Session) -> Iterator[tuple[str, Finding]]:
    """Run all checks; each finding comes with the name of its check. A check that raises is reported as an
    error and does not stop the others. A cause that breaks several checks is reported once, by the first of
    them."""
    told: dict[Finding, list[str]] = {}
    for name, check in _CHECKS.items():
        for found in _findings(check, session):
            told.setdefault(found, []).append(name)
    for found, (name, *others) in told.items():
        yield name, replace(found, text=for_app(found.text))
        if others:
            yield (
                name,
                replace(found, text=f"not checked, for the same reason: {', '.join(others)}"),
            )


def _findings(check: Callable[[Session], Findings], session: Session) -> Findings:
    try:
        yield from check(session)
    except Exception as error:  # noqa: BLE001 - the other checks still run
        yield Finding(Level.ERROR, _said(error))


def _said(error: Exception) -> str:
    if isinstance(error, CeleryDLQError):
        return one_line(str(error))
    return one_line(f"{type(error).__name__}: {error}")


def _settings(session: Session) -> Findings:
    session.queue.settings  # noqa: B018 - reading validates them
    yield Finding(Level.OK, "every dlq_* setting is valid")


def _store(session: Session) -> Findings:
    from celery_dlq.store.database.dialects.supported import dialect_for, parse_url
    from celery_dlq.store.database.schema import HEAD

    url = parse_url(session.queue.settings.store_url)
    if url.password and not os.environ.get(STORE_URL_VARIABLE):
        yield password_shown("dlq_store_url", STORE_URL_VARIABLE)
    depth = counted(session.store.counts.letters(Filter()), "open letter")
    # This operation does not exist, so the write changes nothing, but it fails on a read-only database.
    session.store.claims.release("doctor", "doctor", [""])
    yield Finding(Level.OK, f"{session.queue.check_store_url()} answers, schema {HEAD}, {depth}")
    if dialect_for(url).is_file:
        yield from _store_file(url.database or "")


def _store_file(path: str) -> Findings:
    if is_exposed(Path(path)):
        yield Finding(
            Level.WARNING,
            f"other users can read {path}, which holds whole messages; run: chmod go= {path}*",
        )
    if not path.startswith(("/", "file:")):
        yield Finding(
            Level.WARNING,
            f"{path} is relative to the working directory, {Path.cwd()}, so a worker started elsewhere "
            "uses another store; set dlq_store_url to an absolute path",
        )


def _clock(session: Session) -> Findings:
    wrong = why_wrong(session.store.clock_ahead())
    if wrong:
        yield Finding(Level.WARNING, wrong)
    else:
        yield Finding(Level.OK, "this machine and the database agree")


def _spool(session: Session) -> Findings:
    spool = session.queue.spool
    directory = spool.directory.absolute()
    unusable = _why_unusable(spool)
    if unusable:
        yield Finding(
            Level.ERROR,
            f"{unusable}: while the store is down, letters would go to the log only; make the directory "
            "writable for the worker's user, or set another dlq_spool_dir",
        )
        return
    yield from _exposed(directory)
    found = list(look(directory))
    states = Counter(file.state for file in found)
    waiting = sum(file.records for file in found if file.state is FileState.IN_USE)
    steps = [(state, step) for state, step in _SPOOL_STEPS.items() if states[state]]
    for state, step in steps:
        files = counted(states[state], f"{state.value} file")
        yield Finding(Level.WARNING, f"{files} in {directory}: {step}")
    if not steps:
        held = "and empty"
        if waiting:
            held = (
                f"and has {counted(waiting, 'record')} that workers keep until the store takes them"
            )
        yield Finding(Level.OK, f"{directory} is writable {held}")


def _exposed(directory: Path) -> Findings:
    """A warning if other users can read the spool, which holds whole messages."""
    files = len(exposed_files(directory))
    if is_exposed(directory) and (files or not is_shared(directory)):
        read = f" and read {counted(files, 'file')} with whole messages" if files else ""
        yield Finding(
            Level.WARNING,
            f"other users can list {directory}{read}; run: chmod -R go= {directory}",
        )


def _why_unusable(spool: Spool) -> str:
    """Why a letter could not be spooled; empty if it could."""
    directory = spool.directory.absolute()
    if directory.is_dir():
        try:
            spool.check()
        except OSError as error:
            return str(error)
        return ""
    return why_not_writable(directory)


_SPOOL_STEPS = {
    FileState.WAITING: "a worker started here drains them once the store answers; to drain them now, run: "
    "celery -A <app> dlq spool drain",
    FileState.NEWER: "a newer release wrote them; run: pip install --upgrade celery-dlq",
    FileState.TORN: "incomplete lines, set aside; read the files, keep a copy elsewhere, and remove them",
    FileState.REFUSED: "letters that the store refuses; fix the cause, run "
    "celery -A <app> dlq spool import FILE, and remove the files",
}


def _broker(session: Session) -> Findings:
    with session.cli.app.connection_for_write(connect_timeout=BROKER_TIMEOUT_S) as connection:
        shown = connection.as_uri()
        try:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=BROKER_TIMEOUT_S)
        except Exception as error:  # noqa: BLE001 - each transport has its own errors
            why = f"{shown} does not answer ({_said(error)}); check broker_url and the broker"
            yield Finding(Level.ERROR, why)
        else:
            yield Finding(Level.OK, f"{shown} answers")


def _ingest(session: Session) -> Findings:
    for queue in session.queue.settings.ingest_queues:
        yield _ingest_queue(session, queue)


def _ingest_queue(session: Session, queue: str) -> Finding:
    from celery_dlq.ingest.source import open_source

    try:
        with open_source(session.cli.app, queue) as source:
            held = counted(source.count(), "message")
    except CeleryDLQError as error:
        return Finding(Level.ERROR, _said(error))
    return Finding(Level.OK, f"dead-letter queue {queue} holds {held}")


def _tasks(session: Session) -> Findings:
    session.load_tasks()
    ours, others = dlq_tasks(session.cli.app), other_tasks(session.cli.app)
    if ours:
        yield Finding(Level.OK, f"{counted(len(ours), 'task')} with base=DLQTask")
        if others:
            text = f"{named(task.name for task in others)}: another base class, so not captured"
            yield Finding(Level.OK, text)
    else:
        yield Finding(
            Level.WARNING,
            "no task uses DLQTask, so nothing is captured; write @app.task(base=DLQTask), or check that "
            "-A names the app that defines the tasks",
        )


def _rules(session: Session) -> Findings:
    session.queue.check_rules()
    yield Finding(Level.OK, "every exception named by a rule exists")


def _routes(session: Session) -> Findings:
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
    yield from (Finding(Level.WARNING, text) for text in found)
    if settings.routes and not found:
        yield Finding(Level.OK, f"{counted(len(known), 'route')}")


def _unmet(route: Route, tasks: Sequence[str]) -> Iterator[str]:
    """The tasks of a route that the app does not have, so that no letter of them can come."""
    if _FROM_ELSEWHERE.intersection(route.reason):
        return
    for given in route.task:
        if not any(names_task(given, task) for task in tasks):
            near = near_names(given.rstrip("*"), tasks)
            meant = f" did you mean {near[0]!r}?" if near else ""
            yield f"this app has no task {given!r};{meant or ' correct the name, or remove the route'}"


def _hooks(session: Session) -> Findings:
    session.queue.hooks.check()
    yield Finding(Level.OK, "every hook named by a setting exists")


def _fingerprints(session: Session) -> Findings:
    recipe = session.queue.regrouper().recipe
    yield Finding(Level.OK, f"failures are grouped by {recipe}")
    for other, number in sorted(session.store.regroupings.waiting().items()):
        if other not in ("", recipe):
            yield Finding(
                Level.WARNING,
                f"{counted(number, 'group')} wait for the recipe {other}, which this app does not have; to "
                "apply the one that it has: celery -A <app> dlq groups regroup",
            )
    folded = session.store.regroupings.folded()
    if folded:
        yield Finding(
            Level.WARNING,
            f"{counted(len(folded), 'place')} in the code made too many groups, which were folded into one: "
            f"{named(folded)}; write a recipe (dlq_fingerprint), or undo it: celery -A <app> dlq groups "
            "split GROUP",
        )


def _capture(session: Session) -> Findings:
    found: dict[Gap, list[str]] = {}
    for gap in gaps(session.cli.app):
        found.setdefault(replace(gap, task=""), []).append(gap.task)
    for gap, tasks in found.items():
        level = Level.ERROR if gap.loses_letters else Level.WARNING
        yield Finding(level, f"{named(tasks)}: {gap.why}")


def _waits(session: Session) -> Findings:
    held = session.queue.hold.at_most_s
    longest = {task.name: _longest_wait(task, session) for task in dlq_tasks(session.cli.app)}
    beyond = [task for task, wait in longest.items() if wait > held]
    if beyond:
        wait = duration(max(longest.values()))
        text = (
            f"{named(beyond)}: a retry may wait {wait}; one longer than {duration(held)} is parked"
        )
        yield Finding(Level.OK, text)
    elif longest:
        yield Finding(Level.OK, f"no retry waits longer than {duration(held)}, so none is parked")


def _parked(session: Session) -> Findings:
    waiting = session.store.counts.letters(Filter(states=frozenset({State.PARKED})))
    late = session.store.parked.overdue(_OVERDUE_S)
    if late:
        yield Finding(
            Level.WARNING,
            f"{counted(late, 'parked retry', 'parked retries')} should have run at least "
            f"{duration(_OVERDUE_S)} ago: no worker runs on the broker where they were parked, or it "
            "cannot send them; start one and read its log, or let a worker of this app send them: "
            f"{session.command('release', '--all')}",
        )
    else:
        text = f"{counted(waiting, 'parked retry', 'parked retries')}, none overdue"
        yield Finding(Level.OK, text)


def _circuits(session: Session) -> Findings:
    seen = session.store.circuits.read_open()
    for circuit in seen.circuits[:_NAMED_CIRCUITS]:
        age = duration((seen.now - (circuit.opened_at or seen.now)).total_seconds())
        text = (
            f"the circuit of {circuit.name} has been open for {age}: {circuit.failures} transient failures, "
            f"{counted(circuit.probes, 'failed probe')}; its messages are parked until a probe succeeds"
        )
        yield Finding(Level.WARNING, text)
    more = len(seen.circuits) - _NAMED_CIRCUITS
    if more > 0:
        yield Finding(Level.WARNING, f"{counted(more, 'more circuit')} not closed")
    if not seen.circuits:
        yield Finding(Level.OK, "none is open")


def _longest_wait(task: Any, session: Session) -> float:
    """The longest backoff or fixed delay plus the longest Retry-After."""
    from celery_dlq.worker.body.retrying import policy_of

    policy = policy_of(task)
    own = policy.cap if policy.fixed_delay is None else policy.fixed_delay
    return float(own + session.queue.settings.retry_after_max)


_CHECKS: dict[str, Callable[[Session], Findings]] = {
    "settings": _settings,
    "store": _store,
    "servers": servers.check_servers,
    "replica": replica.check_replica,
    "pooler": pooler.check_pooler,
    "clock": _clock,
    "spool": _spool,
    "broker": _broker,
    "workers": unattended.check_workers,
    "stalled": stalled.check_stalled,
    "ingest": _ingest,
    "tasks": _tasks,
    "rules": _rules,
    "hooks": _hooks,
    "fingerprints": _fingerprints,
    "routes": _routes,
    "capture": _capture,
    "waits": _waits,
    "parked": _parked,
    "circuits": _circuits,
    "acks": acknowledgement.check,
    "auto": unattended.check_auto_redrives,
    "handlers": unattended.check_handlers,
    "retention": keeping.check_retention,
    "archive": keeping.check_archive,
    "recorder": recorder.check_recorder,
    "taking": taking.check_taking,
}
