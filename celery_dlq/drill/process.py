"""A process of a drill's own: a worker of the user's app, a sender, or a redrive that is to be killed. What
all processes of a drill share: names, addresses, and the log of the tasks' runs.

Its standard input is a pipe: when the drill ends, however that happens, the pipe is closed, and the process
and its pool end.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from celery import signals
from celery.app.utils import find_app
from kombu import Exchange, Queue

from celery_dlq.api.isolation import isolated
from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.base.process import private_opener
from celery_dlq.errors import OperationError
from celery_dlq.model.headers import REDRIVE_HEADER
from celery_dlq.model.operation import ENDED, Guard, OperationState, Orders, Pacing
from celery_dlq.model.states import Reason
from celery_dlq.store.base import Filter
from celery_dlq.worker.task import DLQTask

#: The tasks of a drill, by whether they acknowledge late.
TASKS = {False: "celery_dlq.drill.early", True: "celery_dlq.drill.late"}


class Body(str, Enum):
    """What the body of a drill's task does."""

    #: Sleep, and succeed.
    WORK = "work"
    FAIL = "fail"
    #: Fail with a transient error at the first attempt.
    RECOVER = "recover"
    #: Fail unless the message was redriven.
    HEAL = "heal"
    #: Kill the process.
    DIE = "die"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The names and addresses of one drill. It has passwords, so its file is private."""

    #: As after ``celery -A``.
    app: str
    #: Also the name of its exchange.
    queue: str
    exchange_type: str
    queue_arguments: Mapping[str, Any]
    directory: str
    broker_url: str
    #: Additions to ``broker_transport_options``.
    transport_options: Mapping[str, Any]
    store_url: str
    spool_dir: str
    recorder_dir: str
    #: None for the pool of the app's configuration.
    pool: str | None

    def write(self) -> None:
        """Store it in its directory."""
        path = os.path.join(self.directory, "plan.json")
        with open(path, "w", opener=private_opener) as file:
            json.dump(asdict(self), file)

    @classmethod
    def read(cls, directory: str) -> Plan:
        """The plan in ``directory``."""
        return cls(**json.loads(Path(directory, "plan.json").read_text()))

    @property
    def runs(self) -> Runs:
        """The log of the tasks' runs."""
        return Runs(Path(self.directory, "runs"))


class Runs:
    """A file in which the tasks of a drill note that they began or finished."""

    STARTED, FINISHED, READY = "started", "finished", "ready"

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, what: str, task_id: str = "") -> None:
        """Append a line. Lines of several processes do not mix, because each is short."""
        with self._path.open("a") as file:
            file.write(f"{what} {os.getpid()} {task_id}\n")

    def pids(self, what: str, task_id: str = "") -> list[int]:
        """The processes that have noted ``what``, the oldest first."""
        try:
            lines = [line.split(" ") for line in self._path.read_text().splitlines()]
        except FileNotFoundError:
            return []
        return [int(pid) for noted, pid, owner in lines if (noted, owner) == (what, task_id)]


#: Messages that are sent while the broker is away.
UNSENT = 3

#: Messages per second of the redrive that is killed, so that there is a middle.
_RATE = 10.0

_WHO = "dlq drill"


class DrillFailure(Exception):
    """A task of a drill failed on purpose, for good."""


class DrillOutage(Exception):
    """A task of a drill failed on purpose, for now."""


@contextlib.contextmanager
def prepared(plan: Plan) -> Iterator[Any]:
    """The user's app, with the queue, the store and the tasks of the drill. It does nothing by itself,
    because its letters are not real."""
    app = find_app(plan.app)
    settings = {
        **dict.fromkeys(("broker_url", "broker_read_url", "broker_write_url"), plan.broker_url),
        "broker_transport_options": {
            **(app.conf.broker_transport_options or {}), **plan.transport_options
        },
        "task_queues": [queue_of(plan)],
        "task_default_queue": plan.queue,
        "task_routes": None,
        "worker_enable_remote_control": False,
        "worker_send_task_events": False,
        "dlq_store_url": plan.store_url,
        "dlq_spool_dir": plan.spool_dir,
        "dlq_recorder_dir": plan.recorder_dir,
    }  # fmt: skip
    with isolated(app, settings):
        for late, name in TASKS.items():
            _add_task(app, name, plan.runs, late=late)
        yield app


def queue_of(plan: Plan) -> Queue:
    """The queue of a drill, of the kind that the app's default queue has."""
    exchange = Exchange(plan.queue, type=plan.exchange_type)
    return Queue(plan.queue, exchange, plan.queue, queue_arguments=dict(plan.queue_arguments))


def _add_task(app: Any, name: str, runs: Runs, *, late: bool) -> None:
    @app.task(  # type: ignore[untyped-decorator]
        name=name, base=DLQTask, bind=True, shared=False, acks_late=late, ignore_result=True,
        autoretry_for=(DrillOutage,), dont_autoretry_for=(DrillFailure,), retry_backoff=1.0,
    )  # fmt: skip
    def run(self: Any, body: str, seconds: float = 0.0) -> None:
        runs.note(Runs.STARTED, self.request.id)
        time.sleep(seconds)
        _do(Body(body), self.request)
        runs.note(Runs.FINISHED, self.request.id)


def _do(body: Body, request: Any) -> None:
    if body is Body.FAIL or (body is Body.HEAL and not request.get(REDRIVE_HEADER)):
        raise DrillFailure("this task of the drill fails on purpose")
    if body is Body.RECOVER and not request.retries:
        raise DrillOutage("this task of the drill fails once, on purpose")
    if body is Body.DIE:
        os.kill(os.getpid(), signal.SIGKILL)


def _work(app: Any, plan: Plan) -> None:
    signals.worker_ready.connect(lambda **_: plan.runs.note(Runs.READY), weak=False)
    pool = ["-P", plan.pool] if plan.pool else []
    app.worker_main([
        "worker", "-n", f"{plan.queue}@%h", "-Q", plan.queue, "-c", "2", "-l", "INFO", *pool,
        "--without-gossip", "--without-mingle", "--without-heartbeat",
    ])  # fmt: skip


def _redrive(app: Any) -> None:
    """Send all letters back; or continue the redrive that was killed."""
    queue = DeadLetterQueue.of(app)
    begun = queue.store.operations.find(states=frozenset(OperationState) - ENDED)
    if not begun:
        orders = Orders(pacing=Pacing(rate=_RATE, batch=2), guard=Guard(enabled=False))
        queue.redrives.start(
            Filter(task=TASKS[True], reason=Reason.TERMINAL), who=_WHO, orders=orders
        )
    while begun and not _is_resumed(queue, begun[0].id):
        time.sleep(1.0)


def _is_resumed(queue: DeadLetterQueue, operation_id: str) -> bool:
    """Whether the operation was continued, which waits for the lease of the process that was killed."""
    try:
        queue.redrives.resume(operation_id, who=_WHO)
    except OperationError:
        return False
    return True


def _send(app: Any, task_ids: Sequence[str]) -> None:
    task = app.tasks[TASKS[False]]
    task.dlq_unsent = "store"
    for task_id in task_ids:
        task.apply_async((Body.WORK.value,), task_id=task_id)


def _end_with_the_drill() -> None:
    # Unlike a read, this lets the greenlets of gevent's pool run.
    select.select([sys.stdin], [], [])
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Run the process that the command line names."""
    directory, role, *words = sys.argv[1:]
    threading.Thread(target=_end_with_the_drill, daemon=True).start()
    plan = Plan.read(directory)
    with prepared(plan) as app:
        if role == "worker":
            _work(app, plan)
        elif role == "send":
            _send(app, words[:UNSENT])
        else:
            _redrive(app)
