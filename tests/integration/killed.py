"""Workers that acknowledge early and are killed with all their processes, and the account of what their
tasks have done and which letters there are."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from amqp.exceptions import ChannelError
from project import PATIENCE_S, WORKER_OPTIONS, Project, wait_for
from queues import redis_options
from sqlalchemy import select

from celery_dlq import DeadLetter, Filter
from celery_dlq.model.states import Reason, State
from celery_dlq.recorder.files import look
from celery_dlq.redrive.broker.queues import depth_of
from celery_dlq.store.database import tables

KILLS = int(os.environ.get("CELERY_DLQ_WORKER_KILLS", "4"))
TASKS = int(os.environ.get("CELERY_DLQ_WORKER_TASKS", "400"))
#: A test of what plain Celery loses would assert nothing.
IS_PLAIN = bool(os.environ.get("CELERY_DLQ_WORKER_PLAIN"))

#: The longest body, in seconds, and the longest life of a worker after its first task has begun.
BODY_S, LIFE_S = 0.05, 1.0
#: How long the parent may take to notice that a body has ended, in seconds. Beside other tests it takes
#: longer than alone, as `make kill-workers` runs it.
NOTICED_S = float(os.environ.get("CELERY_DLQ_WORKER_NOTICED_S", "1.0"))
#: Seconds after which Redis and SQS give unacknowledged messages back.
VISIBLE_AFTER_S = 5

POOLS = {
    "prefork": ("--pool", "prefork", "-c", "4"),
    "threads": ("--pool", "threads", "-c", "4"),
    "solo": ("--pool", "solo"),
    "gevent": ("--pool", "gevent", "-c", "4"),
}


@dataclass
class Notes:
    """What the tasks have noted, by their numbers; times in seconds since the epoch."""

    began: dict[int, list[float]] = field(default_factory=dict)
    ended: dict[int, list[float]] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        """How often a body began."""
        return sum(map(len, self.began.values()))


def read_notes(project: Project) -> Notes:
    """What the tasks have noted until now."""
    notes = Notes()
    for line in project.lines("notes"):
        what, number, at = line.split()
        times = notes.began if what == "began" else notes.ended
        times.setdefault(int(number), []).append(float(at))
    return notes


@dataclass(frozen=True)
class Kill:
    """A worker's end, in seconds since the epoch. Until its last process is gone, tasks may end."""

    sent_at: float
    over_at: float


@dataclass(frozen=True)
class Account:
    """Where the tasks are when all is over."""

    notes: Notes
    #: The letters of tasks, by their numbers, the lost ones only and all.
    lost: dict[int, DeadLetter]
    letters: dict[int, list[DeadLetter]]
    #: The worker of each attempt of a task's letter, where it has more than one.
    workers: dict[int, list[str]]
    kills: Sequence[Kill]

    @property
    def vanished(self) -> set[int]:
        """Tasks that began, and neither ended nor have a letter."""
        return self.notes.began.keys() - self.notes.ended.keys() - self.letters.keys()

    @property
    def doubled(self) -> set[int]:
        """Tasks with more than one letter."""
        return {number for number, letters in self.letters.items() if len(letters) > 1}

    @property
    def told_twice(self) -> set[int]:
        """Tasks whose letter has two attempts of one worker: each worker takes a message once."""
        return {
            number for number, names in self.workers.items() if len(names) > len(frozenset(names))
        }

    @property
    def needless(self) -> dict[int, float]:
        """The open lost letters of tasks all of whose runs have ended: how many seconds before the signal
        that killed a worker; infinite if none was killed afterwards."""
        return {
            number: self._before_a_kill(max(self.notes.ended[number]))
            for number, letter in self.lost.items()
            if letter.state is State.DEAD
            and len(self.notes.ended.get(number, ())) == len(self.notes.began.get(number, ()))
            and number in self.notes.ended
        }

    def _before_a_kill(self, at: float) -> float:
        left = (max(0.0, kill.sent_at - at) for kill in self.kills if kill.over_at > at)
        return min(left, default=float("inf"))

    def __str__(self) -> str:
        notes, open_ones = self.notes, sum(it.state is State.DEAD for it in self.lost.values())
        return (
            f"{len(self.kills)} kills: {len(notes.began)} tasks began, {len(notes.ended)} ended, "
            f"{len(self.lost)} lost letters ({open_ones} open), "
            f"{len(self.letters) - len(self.lost)} other letters, {len(self.vanished)} vanished, "
            f"{sum(len(times) > 1 for times in notes.began.values())} ran twice, "
            f"{len(self.needless)} letters of ended tasks, "
            f"at most {max(self.needless.values(), default=0.0):.3f} s before the kill"
        )


def account_of(project: Project, kills: Sequence[Kill]) -> Account:
    """The account, once all tasks have ended and all files were recovered."""
    letters: dict[int, list[DeadLetter]] = {}
    lost: dict[int, DeadLetter] = {}
    workers: dict[int, list[str]] = {}
    for letter in letters_of(project):
        number = int(letter.args[0])
        letters.setdefault(number, []).append(letter)
        if letter.reason is Reason.LOST:
            lost[number] = letter
        if letter.attempt_count > 1:
            whole = project.dlq.store.letters.get(letter.task_id)
            workers[number] = [attempt.worker for attempt in whole.attempts]
    return Account(read_notes(project), lost, letters, workers, kills)


def letters_of(project: Project, **wanted: object) -> list[DeadLetter]:
    """The letters of the project, in all states."""
    found: list[DeadLetter] = []
    after = None
    while True:
        page = project.dlq.store.letters.find(
            Filter(states=frozenset(State), **wanted), limit=500, after=after
        )
        found += page.letters
        after = page.next
        if after is None:
            return found


def be_patient_with_the_broker(project: Project) -> None:
    """Let the workers, and the test that recovers files itself, wait for the broker equally long."""
    if project.broker.startswith(("redis", "sqs")):
        transport = {
            "visibility_timeout": VISIBLE_AFTER_S,
            # A worker that is killed while it gives messages back keeps all others on Redis from it for this
            # long.
            "unacked_mutex_expire": VISIBLE_AFTER_S,
        }
        project.environ["PROJ_TRANSPORT"] = json.dumps(transport)
        project.app.conf.broker_transport_options = {
            **project.app.conf.broker_transport_options,
            **transport,
        }


def send_noted(
    project: Project,
    tasks: int,
    chance: random.Random,
    *,
    first: int = 0,
    body_s: float = BODY_S,
    failures: float = 0.0,
) -> None:
    """Send ``tasks`` messages, numbered from ``first``. Their bodies take up to ``body_s`` seconds, and a
    share of ``failures`` fails."""
    with project.app.pool.acquire(block=True) as connection, connection.Producer() as producer:
        for number in range(first, first + tasks):
            project.app.send_task(
                "proj.noted",
                (number, chance.uniform(0, body_s), chance.random() < failures),
                task_id=_task_id(number),
                producer=producer,
            )


def traces_of(project: Project, account: Account, numbers: Iterable[int]) -> str:
    """Everything that is known of these tasks: for the message of a test that fails."""
    log = log_of(project).read_text().splitlines()
    kills = ", ".join(f"{at:.6f}" for at in account.kills)
    spooled = [path.name for path in project.dlq.spool.files()]
    told = [f"{waiting(project)} messages wait; kills at {kills}; in the spool: {spooled}"]
    notes = account.notes
    for number in numbers:
        task_id = _task_id(number)
        told += [
            f"number {number}: began {notes.began.get(number)}, ended {notes.ended.get(number)}",
            f"  letter: {project.dlq.store.letters.get(task_id)}",
            f"  deliveries: {_deliveries(project, task_id)}",
            *(f"  {line}" for line in log if re.search(rf"\b{task_id}\b", line)),
        ]
    return "\n".join(told)


def _deliveries(project: Project, task_id: str) -> Sequence[object]:
    table = tables.delivery
    with project.dlq.store.database.engine.connect() as connection:
        return connection.execute(select(table).where(table.c.task_id == task_id)).all()


def _task_id(number: int) -> str:
    return f"noted-{number}"


@contextlib.contextmanager
def worker(project: Project, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker whose processes are a group of their own; they are killed at the end."""
    with log_of(project).open("ab") as log:
        process = subprocess.Popen(
            project.command("worker", "-n", f"{random.random()}@%h", *WORKER_OPTIONS, *options),
            env=project.environment, cwd=project.directory, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        kill(process)


def log_of(project: Project) -> Path:
    """The log of all these workers."""
    return project.directory / "workers.log"


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker and its pool at the same moment."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def worker_with_a_run(
    project: Project, *options: str, kills: list[Kill]
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker in which a body has begun; it is killed at the end, with all its processes.

    :param kills: gets its end.
    """
    path = project.directory / "notes"
    before = path.stat().st_size if path.exists() else 0
    with worker(project, *options) as process:
        wait_for("a task to begin", partial(_has_begun, path, before))
        yield process
        sent_at = time.time()
        kill(process)
        kills.append(Kill(sent_at, time.time()))


def _has_begun(path: Path, before: int) -> bool:
    if not path.exists():
        return False
    with path.open("rb") as file:
        file.seek(before)
        return b"began" in file.read()


def wait_for_all(project: Project) -> None:
    """Wait until no message waits at the broker or in a worker, and no body begins any more."""

    def is_end() -> bool:
        before = read_notes(project).runs
        if waiting(project):
            return False
        time.sleep(1)
        return before == read_notes(project).runs and not waiting(project)

    wait_for("all tasks to begin", is_end, PATIENCE_S + TASKS / 10)


def waiting(project: Project) -> int:
    """Messages that the broker has or may deliver again."""
    with project.app.connection_for_write() as connection:
        channel = connection.default_channel
        if project.broker.startswith("sqs"):
            return sum(depth_of(channel, project.queue) or ())
        try:
            size = channel.queue_declare(project.queue, passive=True).message_count
        except ChannelError:  # on Redis, an empty queue does not exist
            size = 0
        if not project.broker.startswith("redis"):
            return int(size)
        with channel.conn_or_acquire() as client:
            return int(size + client.hlen(redis_options(project.queue)["unacked_key"]))


def wait_for_recovery(project: Project, living: subprocess.Popen[bytes] | None = None) -> None:
    """Wait until no files are left but those of the worker ``living``, which may have none; recover files
    here, too, because workers do it once a minute."""

    def is_recovered() -> bool:
        list(project.dlq.recorder.recover())
        owners = [left.owner for left in look(project.dlq.recorder_dir)]
        return all(owner and living and owner.pid == living.pid for owner in owners)

    wait_for("the files to be recovered", is_recovered)


def directories(project: Project) -> set[Path]:
    """The recorder's directories, one for each worker."""
    return set(project.dlq.recorder_dir.glob("[!.]*"))
