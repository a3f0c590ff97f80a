"""The checks of the doctor on the broker, its workers, and the messages between them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kombu.exceptions import DecodeError, SerializerNotInstalled

from celery_dlq.base.addresses import broker_of, reach
from celery_dlq.base.known import near_names
from celery_dlq.cli.doctor import (
    BROKER_TIMEOUT_S,
    Finding,
    Findings,
    Level,
    failure,
    judged,
    named,
    ok,
    said,
    warning,
    why_not_writable,
    worker_facts,
)
from celery_dlq.cli.doctor.sqs import check_queues
from celery_dlq.cli.session import Session
from celery_dlq.recorder.files import FilesState
from celery_dlq.view.text import counted
from celery_dlq.view.times import duration
from celery_dlq.worker.broker_limits import (
    UNACCEPTED_S,
    driver_of,
    not_covered,
    options_read,
    visibility_timeout,
)
from celery_dlq.worker.celery_quirks.redis_take import why_not
from celery_dlq.worker.uncaptured import dlq_tasks

#: Brokers on which workers cannot be asked. pgmq allows 47 characters in a queue's name, and the queue for
#: the answers needs 57.
_UNANSWERED = {"pgmq": "pgmq", "sqs": "Amazon SQS"}

#: Seconds to wait for the answers of workers.
_ANSWERS_S = 2.0

_NOT_EXCLUSIVE = (
    "RabbitMQ, as 4.3 does, refuses queues that are neither durable nor exclusive, but the installed Celery "
    "declares them for control and events; run: pip install 'celery>=5.7' 'kombu>=5.7'; on Celery 5.6, you "
    "can set control_queue_exclusive and event_queue_exclusive to True instead"
)

_RETRIED = (
    "retry_on_worker_lost takes precedence over reject_on_worker_lost: when its worker process dies, the "
    "task is retried after default_retry_delay (180 s by default), up to max_retries, and "
    "dlq_max_deliveries does not count the death; turn it off, unless you want this"
)

#: File systems, as the kernel names them, and what ends their contents.
_TRANSIENT = {
    "tmpfs": "in memory: its files go when the machine or the pod ends",
    "ramfs": "in memory: its files go when the machine or the pod ends",
    "overlay": "the container's own: its files go when the container is replaced",
    "aufs": "the container's own: its files go when the container is replaced",
}

_LEFT_STEPS = {
    FilesState.DAMAGED: "something in it cannot be read; keep a copy elsewhere, and remove it",
}


def check_broker(session: Session) -> Findings:
    with session.cli.app.connection_for_write(connect_timeout=BROKER_TIMEOUT_S) as connection:
        shown = broker_of(connection)
        try:
            reach(connection, BROKER_TIMEOUT_S)
        except Exception as error:  # noqa: BLE001 - each transport has its own errors
            yield failure(
                f"{shown} does not answer ({said(error)}); check broker_url and the broker"
            )
            return
        if connection.transport.driver_type == "sqs":
            yield from check_queues(session, connection.default_channel)
        else:
            yield ok(f"{shown} answers")
            yield from _refused_queues(session.cli.app, connection)


def check_transport(session: Session) -> Findings:
    """Whether something is not covered on the broker's transport, or its options are not read."""
    app = session.cli.app
    why = not_covered(app)
    if why:
        yield warning(why)
        return
    with app.connection_for_read() as connection:
        given, known = connection.transport_options, options_read(connection)
    for name in sorted(given.keys() - known):
        near = near_names(name, known)
        step = f"did you mean {near[0]!r}?" if near else "correct its name, or remove it"
        yield warning(f"broker_transport_options has {name!r}, which kombu does not read; {step}")


def _refused_queues(app: Any, connection: Any) -> Findings:
    """A failure if RabbitMQ refuses the queues that each worker declares for control and events."""
    if driver_of(app) != "amqp":
        return
    own = f"celery_dlq-doctor-{secrets.token_hex(4)}"
    queues = app.control.mailbox(connection).get_queue(own), app.events.Receiver(connection).queue
    for queue in queues:
        if queue.durable or queue.exclusive:
            continue
        bound = queue(connection.default_channel)
        try:
            bound.queue_declare()
            bound.delete()
        except connection.connection_errors + connection.channel_errors as error:
            yield failure(f"no worker can start: {_NOT_EXCLUSIVE} ({said(error)})")
            return


def check_workers(session: Session) -> Findings:
    """Whether a worker runs operations and parked retries, and reads outcomes, in this store."""
    why = session.why_no_worker()
    yield judged(why, "a worker on this broker does what is left to workers, in this store")


def check_stalled(session: Session) -> Findings:
    """A warning for each worker that is stalled and answers. One whose whole connection is dead cannot
    answer."""
    unanswered = no_remote_control(session.cli.app)
    if unanswered:
        yield ok(f"{unanswered}; a stalled worker says so in its log, to hooks and in its metrics")
        return
    answers, unread = answers_of_workers(session.cli.app, "stats")
    if unread:
        yield warning(
            f"{unread}, so from a worker of another app; give it another database or virtual host of the "
            "broker, or another control_exchange"
        )
    stalls = {node: worker_facts(answers[node], "stalled") for node in sorted(answers)}
    for node, stall in stalls.items():
        if stall:
            queues = ", ".join(stall.get("queues", ()))
            what, where = ("received nothing", f"messages wait in {queues}")
            if not queues:
                what, where = (f"kept {stall.get('messages')} messages", "they could run")
            yield warning(
                f"{node} has {what} since {stall.get('since')}, although it has free slots and "
                f"{where}; restart it, and see: celery -A <app> dlq help stalled-workers"
            )
    if stalls and not any(stalls.values()):
        yield ok(f"{counted(len(stalls), 'worker')}, none stalled")


def answers_of_workers(app: Any, question: str, *args: Any) -> tuple[Mapping[str, Any], str]:
    """The answers of the workers, by node, to a question of Celery's ``inspect``; and how many answers cannot
    be read, and why.

    :param question: the name of a method.
    """
    refused: list[str] = []
    with app.connection_for_write(connect_timeout=BROKER_TIMEOUT_S) as connection:
        reach(connection, BROKER_TIMEOUT_S)
        drain_events = connection.drain_events

        def drain(**options: Any) -> None:
            # Celery stops at the first answer that it cannot read, and drops the others.
            try:
                drain_events(**options)
            except (DecodeError, SerializerNotInstalled) as error:
                refused.append(said(error))

        connection.drain_events = drain
        control = app.control.inspect(timeout=_ANSWERS_S, connection=connection)
        found = getattr(control, question)(*args) or {}
    why = f"{counted(len(refused), 'answer')} cannot be read ({named({*refused})})"
    return found, why if refused else ""


def check_taking(session: Session) -> Findings:
    """Whether a worker that is killed can lose the message that it is taking from Redis."""
    refused = _why_not(session) if driver_of(session.cli.app) == "redis" else None
    if refused:
        yield warning(f"a killed worker can lose a message that Redis gives to it: {refused}")
    elif refused is not None:
        yield ok("workers take messages from Redis, and note them, in one step")


def _why_not(session: Session) -> str | None:
    """None if the broker does not answer, which another check reports."""
    app = session.cli.app
    with app.connection_for_read(connect_timeout=BROKER_TIMEOUT_S) as connection:
        try:
            reach(connection, BROKER_TIMEOUT_S)
        except Exception:  # noqa: BLE001 - each transport has its own errors
            return None
        return why_not(connection.default_channel, app.conf.task_default_queue)


def no_remote_control(app: Any) -> str:
    """Says that workers cannot be asked on the app's broker; empty if they can."""
    name = _UNANSWERED.get(driver_of(app))
    return f"{name} has no remote control, so workers cannot be asked here" if name else ""


def hold_limit(app: Any) -> tuple[float, str] | None:
    """How long the broker lets a worker hold a message, in seconds, and the setting that limits it."""
    if driver_of(app) == "amqp":
        return UNACCEPTED_S, "the default of RabbitMQ's consumer_timeout"
    with app.connection_for_read() as connection:
        hidden = visibility_timeout(connection)
    return None if hidden is None else (hidden, "visibility_timeout")


def check_acks(session: Session) -> Findings:
    """Task options that lose a message or run it more than once, alone or in combination."""
    app = session.cli.app
    tasks = dlq_tasks(app)
    found = [
        *_those(tasks, lambda task: not task.acks_late, *_early(session)),
        *_those(tasks, lambda task: _is_rejected_on(task, "failure"), _rejected_to(app)),
        *_those(tasks, lambda task: _is_rejected_on(task, "timeout"), _repeated_up_to(session)),
        *_those(tasks, lambda task: getattr(task, "retry_on_worker_lost", None), _RETRIED),
        *_runs_too_long(session, tasks),
    ]
    yield from found
    if tasks and not found:
        yield ok("every task is acknowledged after it runs, and none repeats without end")


def _early(session: Session) -> tuple[str, Level]:
    step = "if it may safely run twice, set acks_late=True on it, or task_acks_late for all tasks"
    if not session.queue.settings.recorder:
        then = "so a killed worker loses it without a letter"
        return f"acknowledged before it runs, {then}; {step}", Level.WARNING
    then = "so if its worker is killed, the flight recorder makes it a letter, and it does not run again"
    return f"acknowledged before it runs, {then}; {step}", Level.OK


def _is_rejected_on(task: Any, end: str) -> bool:
    """Whether the message is rejected after a failure or a timeout."""
    own = getattr(task, f"acks_on_{end}", None)  # Celery 5.7 has one option for each
    return bool(task.acks_late and not (task.acks_on_failure_or_timeout if own is None else own))


def _rejected_to(app: Any) -> str:
    to = {
        "redis": "Redis drops it",
        "amqp": "RabbitMQ passes it on to the queue's dead-letter exchange, if it has one",
        "sqs": "it is deleted from SQS",
    }
    return (
        "acks_on_failure is off, so the message of a failure is rejected: its letter is stored first, "
        f"then {to.get(driver_of(app), 'the broker decides what to do with it')}; turn it on, unless you "
        "want both"
    )


def _repeated_up_to(session: Session) -> str:
    most = session.queue.settings.max_deliveries
    return (
        "acks_on_timeout is off, so a task that the hard time limit kills is delivered again, up to "
        f"dlq_max_deliveries ({most}) times before it becomes a letter; turn it on, unless the task may "
        "be faster on another worker"
    )


def _runs_too_long(session: Session, tasks: list[Any]) -> Findings:
    app = session.cli.app
    limit = None if _is_renewed(session) else hold_limit(app)
    if limit is None:
        return
    seconds, name = limit
    what = "is started again while it continues" if driver_of(app) != "amqp" else "ends its worker"
    text = (
        f"acks_late without a hard time limit below {duration(seconds)} ({name}): a run that takes "
        f"longer {what}; set time_limit, or raise the broker's limit"
    )
    default_s = app.conf.task_time_limit
    yield from _those(
        tasks, lambda task: task.acks_late and _may_exceed(task, default_s, seconds), text
    )


def _is_renewed(session: Session) -> bool:
    """Whether workers renew the visibility timeout of their messages."""
    is_on = session.queue.settings.restore_unacked
    return is_on and driver_of(session.cli.app) in ("redis", "sqs")


def _may_exceed(task: Any, default_s: float | None, seconds: float) -> bool:
    # Before Celery 5.7, a task without a limit of its own does not show that of its app.
    limit_s = default_s if task.time_limit is None else task.time_limit
    return limit_s is None or limit_s >= seconds


def _those(
    tasks: list[Any], apply: Callable[[Any], Any], text: str, level: Level = Level.WARNING
) -> Findings:
    """A finding that lists the tasks to which ``text`` applies."""
    names = [task.name for task in tasks if apply(task)]
    if names:
        yield Finding(level, f"{named(names)}: {text}")


def check_recorder(session: Session) -> Findings:
    """Whether messages can be recorded, and would be found again."""
    if not session.queue.settings.recorder:
        yield warning(
            "dlq_recorder is off: a worker that is killed loses the tasks that it has acknowledged early"
        )
        if _is_renewed(session):
            yield warning(
                "dlq_recorder is off: the other messages of a worker that is killed come back only after the "
                "visibility timeout, because dlq_restore_unacked needs it to give them back at once"
            )
        return
    directory = session.queue.recorder_dir
    unusable = why_not_writable(directory)
    if unusable:
        yield failure(
            f"{unusable}: messages run without a copy; make the directory writable for the workers' user, or "
            "set dlq_recorder_dir"
        )
        return
    kind = file_system_of(directory)
    if kind in _TRANSIENT:
        yield warning(
            f"{directory} is on {kind}, {_TRANSIENT[kind]}; set dlq_recorder_dir to a volume that outlives "
            "them: celery -A <app> dlq help killed-workers"
        )
    yield from _left(session)
    if kind not in _TRANSIENT:
        yield ok(f"{directory} is writable, on {kind or 'a disk'}")


def _left(session: Session) -> Findings:
    found = list(session.queue.recorder.look())
    gone = sum(one.messages for one in found if one.state is FilesState.GONE)
    if gone:
        yield warning(
            f"{counted(gone, 'message')} of killed workers wait for recovery; a worker started here recovers "
            "them, or run: celery -A <app> dlq recover"
        )
    for state, step in _LEFT_STEPS.items():
        names = ", ".join(one.path.name for one in found if one.state is state)
        if names:
            yield warning(f"{names}: {step}")


def file_system_of(directory: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The type of the file system that ``directory`` is or will be on; empty if the kernel does not say."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    wanted, best, kind = directory.absolute().resolve(), -1, ""
    for line in lines:
        fields, _, others = line.partition(" - ")
        point = Path(fields.split()[4].replace("\\040", " "))
        # A later mount on the same place hides the earlier one.
        if (point == wanted or point in wanted.parents) and len(point.parts) >= best:
            best, kind = len(point.parts), others.split()[0]
    return kind
