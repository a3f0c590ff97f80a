"""The ground of a drill: sends its messages, starts and kills its workers, and sees how each message ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kombu import Connection

from celery_dlq.drill.place import FileLock, Proxy
from celery_dlq.drill.process import TASKS, Body, Plan, Runs, queue_of
from celery_dlq.errors import DrillError
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import Reason, State
from celery_dlq.settings import Settings
from celery_dlq.store.sql import SQLStore

#: Seconds to wait for the end of a message, and for a worker to start.
PATIENCE_S, START_S = 45.0, 90.0

_LOOK_S = 0.05

#: Lines of a worker's log that the error has if it does not start.
_LAST_LINES = 5


@dataclass(frozen=True, kw_only=True)
class End:
    """How one message ended."""

    task_id: str
    is_done: bool
    #: The state of its letter; None if it has none.
    state: State | None
    reason: Reason | None
    #: How often its body began, and how often it came to its end.
    begun: int
    finished: int

    @property
    def is_letter(self) -> bool:
        """Whether it is an open letter."""
        return self.state is State.DEAD and not self.is_done


class Process:
    """A process of a drill, in a group of its own. It ends with the drill, because its input does."""

    def __init__(self, plan: Plan, role: str, *words: str) -> None:
        pool = ["-P", plan.pool] if plan.pool else []
        self.log: Path = Path(plan.directory, f"{role}.log")
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(  # noqa: S603 - this module's own program
                [sys.executable, "-m", "celery_dlq.drill", plan.directory, role, *words, *pool],
                stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._popen.poll() is not None

    def wait(self) -> None:
        """Wait until it has ended, for as long as a process may take to start."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(START_S)

    def kill(self) -> None:
        """Kill it with all its children, as when its machine goes down."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with self._popen:  # closes its input
            pass

    def last_lines(self) -> str:
        """The last lines of its log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LAST_LINES:])


@dataclass(kw_only=True)
class Ground:
    """The means of a drill. When its ``with`` block ends, its processes are killed."""

    app: Any
    plan: Plan
    settings: Settings
    connect: Callable[[], Connection]
    store: SQLStore
    #: None if it cannot be cut.
    broker: Proxy | None
    database: Proxy | FileLock | None
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    #: How often a worker has ended by itself.
    ended_alone: int = 0
    _processes: list[Process] = field(default_factory=list)

    def __enter__(self) -> Ground:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()

    @property
    def worker(self) -> Process:
        """The worker that was started last."""
        return self._processes[0]

    def start_worker(self) -> None:
        """Start a worker, and wait until it has reached the broker.

        :raises DrillError: it does not start.
        """
        known = len(self.plan.runs.pids(Runs.READY))
        self._processes[:1] = [worker := Process(self.plan, "worker")]
        is_up = self._until(
            lambda: worker.has_ended or len(self.plan.runs.pids(Runs.READY)) > known, START_S
        )
        if worker.has_ended or not is_up:
            slow = f"has not started within {START_S:g} s; run the drill when the machine is less busy, or"
            raise DrillError(
                f"The worker of the drill {'ended at its start;' if worker.has_ended else slow} start one of "
                f"yours with celery -A {self.plan.app} worker, and correct what it says. Its last lines: "
                f"{worker.last_lines()}"
            )

    def start_redrive(self) -> Process:
        """Start a redrive of the letters whose tasks succeed when they are redriven."""
        self._processes.append(started := Process(self.plan, "redrive"))
        return started

    def send_apart(self, task_ids: Sequence[str]) -> None:
        """Have messages with these ids sent by a process that connects as the worker does."""
        self._processes.append(sender := Process(self.plan, "send", *task_ids))
        sender.wait()

    def send(self, body: Body, *, late: bool = False, seconds: float = 0.0, **options: Any) -> str:
        """Send a message; returns its id.

        :param late: whether it is acknowledged late.
        :param seconds: for which its body sleeps first.
        :param options: as for ``send_task()``.
        """
        with self.connect() as connection:
            sent = self.app.send_task(
                TASKS[late], (body.value, seconds), queue=queue_of(self.plan), connection=connection,
                ignore_result=True, **options,
            )  # fmt: skip
        return str(sent.id)

    def send_raw(self, body: bytes, headers: Mapping[str, Any]) -> None:
        """Send a message as it is."""
        queue = queue_of(self.plan)
        with self.connect() as connection:
            connection.Producer(exchange=queue.exchange, routing_key=queue.routing_key).publish(
                body,
                content_type="application/json",
                content_encoding="utf-8",
                headers=dict(headers),
                declare=[queue],
            )

    def started(self, *task_ids: str) -> None:
        """Wait until the body of each message has begun."""
        runs = self.plan.runs
        self.until(lambda: all(runs.pids(Runs.STARTED, one) for one in task_ids))

    def ends(self, task_ids: Sequence[str]) -> list[End]:
        """How these messages have ended so far."""
        return [self._end(task_id, self.store.letters.get(task_id)) for task_id in task_ids]

    def _end(self, task_id: str, letter: DeadLetter | None) -> End:
        runs = self.plan.runs
        finished = len(runs.pids(Runs.FINISHED, task_id))
        return End(
            task_id=task_id,
            is_done=finished > 0 and (letter is None or letter.state is State.RESOLVED),
            state=letter.state if letter else None,
            reason=letter.reason if letter else None,
            begun=len(runs.pids(Runs.STARTED, task_id)),
            finished=finished,
        )  # fmt: skip

    def until(self, ready: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
        """Whether ``ready`` becomes true in time. A worker that ends meanwhile is started again, as by a
        supervisor."""
        return self._until(lambda: self._revived() and ready(), patience_s)

    def _revived(self) -> bool:
        if self.worker.has_ended:
            self.ended_alone += 1
            self.worker.kill()
            self.start_worker()
        return True

    def _until(self, ready: Callable[[], bool], patience_s: float) -> bool:
        deadline = self.monotonic() + patience_s
        while not ready():
            if self.monotonic() > deadline:
                return False
            self.sleep(_LOOK_S)
        return True
