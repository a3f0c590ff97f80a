"""The checks of ``celery dlq doctor``: each looks at one thing and says what to do about it."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from celery_dlq.cli import acknowledgement
from celery_dlq.cli.exits import for_app, one_line
from celery_dlq.cli.findings import Finding, Findings, Level, dlq_tasks, named
from celery_dlq.cli.session import Session
from celery_dlq.errors import CeleryDLQError
from celery_dlq.settings import STORE_URL_VARIABLE
from celery_dlq.spool import FileState, Spool, look
from celery_dlq.states import State
from celery_dlq.store.base import Filter
from celery_dlq.view.text import counted
from celery_dlq.view.times import duration

#: Seconds to wait for the broker.
_BROKER_TIMEOUT = 3

#: Seconds after which a parked retry that is due is late: the lease of a worker that died, and the hold of
#: a release that was under way, have ended twice over.
_OVERDUE_S = 180

#: Celery hides settings by words in their names, and the address of the broker and of results.
_PASSWORD_IN_CONF = (
    "the password in dlq_store_url is shown by celery report, by celery inspect conf, and on Flower's "
    f"page of a worker; give the URL in the environment variable {STORE_URL_VARIABLE} instead"
)

#: Open circuits that are named.
_NAMED_CIRCUITS = 10


def examine(session: Session) -> Findings:
    """Run all checks; one that breaks is an error and does not keep the others from running. What
    breaks several is told by the first of them."""
    told: dict[str, str] = {}
    for name, check in _CHECKS.items():
        for found in _findings(name, check, session):
            first = told.setdefault(found.text, name)
            text = found.text if first == name else f"not checked, for the same reason as {first}"
            yield replace(found, text=for_app(text))


def _findings(name: str, check: Callable[[Session], Findings], session: Session) -> Findings:
    try:
        yield from check(session)
    except Exception as error:  # noqa: BLE001 - the doctor goes on
        yield Finding(name, Level.ERROR, _said(error))


def _said(error: Exception) -> str:
    if isinstance(error, CeleryDLQError):
        return one_line(str(error))
    return one_line(f"{type(error).__name__}: {error}")


def _settings(session: Session) -> Findings:
    session.queue.settings  # noqa: B018 - reading validates them
    yield Finding("settings", Level.OK, "every dlq_* setting is valid")


def _store(session: Session) -> Findings:
    from celery_dlq.store.drivers import parse_url
    from celery_dlq.store.schema import HEAD

    url = parse_url(session.queue.settings.store_url)
    shown = url.render_as_string(hide_password=True)
    if url.password and not os.environ.get(STORE_URL_VARIABLE):
        yield Finding("store", Level.WARNING, _PASSWORD_IN_CONF)
    depth = counted(session.store.count(Filter()), "open letter")
    # Nobody holds letters under this name: a write that changes nothing, and fails where none may be.
    session.store.release_sendings("doctor", "doctor", [""])
    yield Finding("store", Level.OK, f"{shown} answers, schema {HEAD}, {depth}")
    path = url.database or ""
    if url.get_backend_name() == "sqlite" and not path.startswith(("/", "file:")):
        yield Finding(
            "store",
            Level.WARNING,
            f"{path} is relative to the working directory, here {Path.cwd()}: a worker started "
            "elsewhere has a store of its own; set dlq_store_url to an absolute path",
        )


def _spool(session: Session) -> Findings:
    spool = session.queue.spool
    directory = spool.directory.absolute()
    unusable = _why_unusable(spool)
    if unusable:
        yield Finding(
            "spool",
            Level.ERROR,
            f"{unusable}: letters would go to the log while the store is down; "
            "give the worker's user a directory that can be written, or set another dlq_spool_dir",
        )
        return
    states = Counter(file.state for file in look(directory))
    steps = [(state, step) for state, step in _SPOOL_STEPS.items() if states[state]]
    for state, step in steps:
        files = counted(states[state], f"{state.value} file")
        yield Finding("spool", Level.WARNING, f"{files} in {directory}: {step}")
    if not steps:
        yield Finding("spool", Level.OK, f"{directory} can be written and nothing waits in it")


def _why_unusable(spool: Spool) -> str:
    """Why a letter could not be kept; empty when it could."""
    directory = spool.directory.absolute()
    if directory.is_dir():
        try:
            spool.check()
        except OSError as error:
            return str(error)
        return ""
    nearest = next(path for path in (directory, *directory.parents) if path.exists())
    try:
        # Permissions do not tell of a file system that is read-only, full, or none for files.
        Path(tempfile.mkdtemp(prefix=".celery_dlq-", dir=nearest)).rmdir()
    except OSError as error:
        return f"{nearest} cannot be written ({error.strerror})"
    return ""


_SPOOL_STEPS = {
    FileState.WAITING: "a worker started here drains them once the store answers, and so does "
    "celery -A <app> dlq spool drain",
    FileState.NEWER: "a newer release wrote them; run: pip install --upgrade celery-dlq",
    FileState.TORN: "lines that are no whole letter; read, keep elsewhere, and remove",
    FileState.REFUSED: "letters that the store does not take; mend the cause, run "
    "celery -A <app> dlq spool import FILE, and remove",
}


def _broker(session: Session) -> Findings:
    with session.cli.app.connection_for_write(connect_timeout=_BROKER_TIMEOUT) as connection:
        shown = connection.as_uri()
        try:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=_BROKER_TIMEOUT)
        except Exception as error:  # noqa: BLE001 - every transport has its own
            why = f"{shown} does not answer ({_said(error)}); check broker_url and the broker"
            yield Finding("broker", Level.ERROR, why)
        else:
            yield Finding("broker", Level.OK, f"{shown} answers")


def _ingest(session: Session) -> Findings:
    for queue in session.queue.settings.ingest_queues:
        yield _ingest_queue(session, queue)


def _ingest_queue(session: Session, queue: str) -> Finding:
    from celery_dlq.ingest.source import open_source

    try:
        with open_source(session.cli.app, queue) as source:
            held = counted(source.count(), "message")
    except CeleryDLQError as error:
        return Finding("ingest", Level.ERROR, _said(error))
    return Finding("ingest", Level.OK, f"dead-letter queue {queue} holds {held}")


def _tasks(session: Session) -> Findings:
    session.load_tasks()
    ours = dlq_tasks(session.cli.app)
    if ours:
        yield Finding("tasks", Level.OK, f"{counted(len(ours), 'task')} with base=DLQTask")
    else:
        yield Finding(
            "tasks",
            Level.WARNING,
            "no task uses DLQTask, so nothing is captured; write @app.task(base=DLQTask), "
            "or check that -A names the app that has the tasks",
        )


def _rules(session: Session) -> Findings:
    session.queue.check_rules()
    yield Finding("rules", Level.OK, "every exception that a rule names is there")


def _hooks(session: Session) -> Findings:
    session.queue.hooks.check()
    yield Finding("hooks", Level.OK, "every hook that a setting names is there")


def _requests(session: Session) -> Findings:
    from kombu.utils.imports import symbol_by_name

    from celery_dlq.worker.request import DLQRequest

    others = [
        task.name
        for task in dlq_tasks(session.cli.app)
        if not issubclass(symbol_by_name(task.Request), DLQRequest)
    ]
    if others:
        yield Finding(
            "requests",
            Level.ERROR,
            f"{named(others)}: a Request class of its own, so its failures are not captured; "
            "derive it from celery_dlq.worker.request.DLQRequest",
        )


def _waits(session: Session) -> Findings:
    held = session.queue.hold.at_most_s
    longest = {task.name: _longest_wait(task, session) for task in dlq_tasks(session.cli.app)}
    beyond = [task for task, wait in longest.items() if wait > held]
    if beyond:
        wait = duration(max(longest.values()))
        text = f"{named(beyond)}: a retry may wait {wait}; beyond {duration(held)} it is parked"
        yield Finding("waits", Level.OK, text)
    elif longest:
        yield Finding(
            "waits", Level.OK, f"no retry waits longer than {duration(held)} or is parked"
        )


def _parked(session: Session) -> Findings:
    waiting = session.store.count(Filter(states=frozenset({State.PARKED})))
    late = session.store.overdue(_OVERDUE_S)
    if late:
        yield Finding(
            "parked",
            Level.WARNING,
            f"{counted(late, 'parked retry', 'parked retries')} should have run "
            f"{duration(_OVERDUE_S)} ago or earlier: no worker runs on the broker on which they were "
            f"parked, or it cannot send them; start one and read its log, or let a worker of this app "
            f"send them: {session.command('release', '--all')}",
        )
    else:
        text = f"{counted(waiting, 'parked retry', 'parked retries')}, none overdue"
        yield Finding("parked", Level.OK, text)


def _circuits(session: Session) -> Findings:
    seen = session.store.open_circuits()
    for circuit in seen.circuits[:_NAMED_CIRCUITS]:
        age = duration((seen.now - (circuit.opened_at or seen.now)).total_seconds())
        text = (
            f"the circuit of {circuit.name} is open for {age}: {circuit.failures} transient failures, "
            f"{counted(circuit.probes, 'failed probe')}; its messages are parked until one runs well"
        )
        yield Finding("circuits", Level.WARNING, text)
    more = len(seen.circuits) - _NAMED_CIRCUITS
    if more > 0:
        yield Finding("circuits", Level.WARNING, f"{counted(more, 'further circuit')} not closed")
    if not seen.circuits:
        yield Finding("circuits", Level.OK, "none is open")


def _longest_wait(task: Any, session: Session) -> float:
    """What backoff, or a fixed delay, and a server's Retry-After may add up to."""
    from celery_dlq.worker.body.retrying import policy_of

    policy = policy_of(task)
    own = policy.cap if policy.fixed_delay is None else policy.fixed_delay
    return float(own + session.queue.settings.retry_after_max)


_CHECKS: dict[str, Callable[[Session], Findings]] = {
    "settings": _settings,
    "store": _store,
    "spool": _spool,
    "broker": _broker,
    "ingest": _ingest,
    "tasks": _tasks,
    "rules": _rules,
    "hooks": _hooks,
    "requests": _requests,
    "waits": _waits,
    "parked": _parked,
    "circuits": _circuits,
    "acks": acknowledgement.check,
}
