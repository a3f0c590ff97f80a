"""Real workers as subprocesses, on real brokers and databases."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from celery import Celery
from celery.bin.base import CLIContext
from celery.utils.nodenames import gethostname
from click.testing import CliRunner
from queues import queue_settings, redis_options, transport_options
from support.servers.databases import delete_all

from celery_dlq import DeadLetter, DeadLetterQueue, Filter
from celery_dlq.cli import dlq
from celery_dlq.model.states import State

HERE = Path(__file__).parent
#: The apps that workers run.
PROJECTS = HERE / "projects"
#: Workers run the code of this checkout, even if the package is installed.
ROOT = HERE.parents[1]
PATIENCE_S = 150.0
#: Without mingle and gossip, which take a second at each start; not by night, because most workers have them.
WORKER_OPTIONS = (
    "-l",
    "INFO",
    *(() if os.environ.get("CELERY_DLQ_TEST_ALL") else ("--without-gossip", "--without-mingle")),
)


def wait_for(what: str, ready: Callable[[], object], patience_s: float = PATIENCE_S) -> object:
    """The first true answer of ``ready``; an assertion error naming ``what`` after ``patience_s``."""
    deadline = time.monotonic() + patience_s
    while True:
        answer = ready()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"waited {patience_s:g} s in vain for {what}"
        time.sleep(0.02)


@dataclass
class Project:
    """One environment: broker, store, result backend, queue; and the workers on it."""

    directory: Path
    broker: str
    store_url: str
    backend: str | None = None
    queue: str = field(default_factory=lambda: f"dlq-test-{uuid.uuid4().hex[:12]}")
    app: Celery = field(init=False)
    sent: list[str] = field(default_factory=list)
    module: str = "proj"
    queue_type: str = "classic"
    #: More directories with modules for the workers.
    also: tuple[Path, ...] = ()
    #: More environment variables for the workers.
    environ: dict[str, str] = field(default_factory=dict)
    #: Options of each worker.
    worker_options: tuple[str, ...] = WORKER_OPTIONS
    #: Settings of the workers' app, over those of proj.py.
    settings: dict[str, object] = field(default_factory=dict)
    #: The workers' names; on the same broker there are workers of other tests.
    nodes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # With the name of the workers' app, because workers run no other app's operations.
        self.app = Celery("proj", broker=self.broker, backend=self.backend, set_as_current=False)
        self.app.conf.update(
            **queue_settings(self.queue, self.queue_type),
            dlq_store_url=self.store_url,
            dlq_spool_dir=str(self.directory / "spool"),
            dlq_store_timeout=60,
        )
        self.app.conf.broker_transport_options = transport_options(self.broker, self.queue)
        self.dlq = DeadLetterQueue.of(self.app)
        for name in TASKS:
            self.app.task(name=f"proj.{name}", shared=False)(_not_here)

    @property
    def fixed(self) -> Path:
        return self.directory / "fixed"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            # In a pipe, tables are as wide as this; wrapped, their texts are hard to find.
            "COLUMNS": "400",
            "PROJ_BROKER": self.broker,
            "PROJ_BACKEND": self.backend or "",
            "PROJ_STORE": self.store_url,
            "PROJ_QUEUE": self.queue,
            "PROJ_QUEUE_TYPE": self.queue_type,
            "PROJ_SPOOL": str(self.directory / "spool"),
            "PROJ_FIXED": str(self.fixed),
            "PROJ_SETTINGS": json.dumps(self.settings),
            "PYTHONPATH": os.pathsep.join(
                map(str, (PROJECTS, HERE, ROOT, self.directory, *self.also))
            ),
            **self.environ,
        }

    def send(self, name: str, *args: object, **kwargs: object) -> str:
        self.sent.append(self.app.send_task(f"proj.{name}", args, kwargs).id)
        return self.sent[-1]

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "celery", "-A", self.module, *words]

    def run(self, *words: str, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), env=self.environment, cwd=self.directory,
            capture_output=True, text=True, timeout=300, **options,
        )  # fmt: skip

    def invoke(self, *words: str) -> Any:
        """The result of ``dlq`` with these words in the test's own process. A process of its own takes a
        second more, and knows the workers' tasks."""
        context = CLIContext(app=self.app, no_color=True, workdir=None, quiet=False)
        result = CliRunner().invoke(dlq, words, obj=context)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def start_worker(self, *options: str) -> tuple[subprocess.Popen[bytes], Path]:
        """A worker that was just started, and its log."""
        name = uuid.uuid4().hex[:6]
        self.nodes.append(f"{name}@{gethostname()}")
        log = self.directory / f"worker-{name}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                self.command("worker", "-n", f"{name}@%h", *self.worker_options, *options),
                env=self.environment, cwd=self.directory, stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip
        return process, log

    @contextlib.contextmanager
    def worker(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker that is ready; it is stopped at the end."""
        process, log = self.start_worker(*options)
        try:
            wait_for(
                f"the worker ({log.read_text()[-2000:]})",
                lambda: b" ready." in log.read_bytes() or process.poll() is not None,
            )
            assert process.poll() is None, log.read_text()
            yield process
        finally:
            stop(process, log)

    def statistics(self) -> dict[str, Any]:
        """The statistics of the latest worker, under ``dlq``."""
        [node] = self.nodes[-1:]
        answers = self.app.control.inspect([node], timeout=30, limit=1).stats()
        assert answers, "the worker does not answer"
        own: dict[str, Any] = answers[node]["dlq"]
        return own

    def active(self) -> dict[str, dict[str, Any]]:
        """The running tasks that the latest worker's parent knows of, by id."""
        [node] = self.nodes[-1:]
        answers = self.app.control.inspect([node], timeout=5, limit=1).active() or {}
        return {task["id"]: task for task in answers.get(node, ())}

    def letter(self, task_id: str) -> DeadLetter | None:
        return self.dlq.store.letters.get(task_id)

    def wait_for_letter(self, task_id: str, state: State = State.DEAD) -> DeadLetter:
        letter = wait_for(
            f"letter {task_id} to be {state.value}",
            lambda: (found := self.letter(task_id)) and found.state is state and found,
        )
        assert isinstance(letter, DeadLetter)
        return letter

    def count(self, **wanted: object) -> int:
        return self.dlq.store.counts.letters(Filter(queue=self.queue, **wanted))

    def parked(self) -> int:
        """How many retries wait in the store."""
        return self.count(states=frozenset({State.PARKED}))

    def lines(self, name: str) -> list[str]:
        """What its tasks have written until now into a file that they share."""
        path = self.fixed.with_name(name)
        return path.read_text().splitlines() if path.exists() else []

    def logs(self) -> list[str]:
        """What each of its workers has logged until now."""
        return [path.read_text() for path in sorted(self.directory.glob("worker-*.log"))]

    def logged(self) -> str:
        """What all its workers have logged until now."""
        return "".join(self.logs())

    def begin_again(self, *files: str) -> None:
        """Remove the messages, the letters, the fix, and files of its tasks, for the next test on the same
        worker."""
        with self.app.connection_for_write() as connection:
            connection.default_channel.queue_purge(self.queue)
        for name in ("fixed", *files):
            self.fixed.with_name(name).unlink(missing_ok=True)
        delete_all(self.dlq.store.database)

    def close(self) -> None:
        """Close what the test's own process has opened, and remove what it left on the servers."""
        if self.backend:
            for task_id in self.sent:
                self.app.AsyncResult(task_id).forget()
            if self.backend.startswith("redis"):
                # A result that is collected later would connect again to unsubscribe.
                gc.collect()
                self.app.backend.result_consumer.cancel_for = _nothing_to_cancel
                # Celery leaves them to the garbage collector, which warns in some other test.
                self.app.backend.client.connection_pool.disconnect()
        with self.app.connection_for_write(self.broker) as connection:
            channel = connection.default_channel
            channel.queue_delete(self.queue)
            if self.broker.startswith("redis"):
                channel.client.delete(*redis_options(self.queue).values())
            if self.queue_type == "quorum":
                channel.exchange_delete(self.queue)
        self.dlq.store.close()
        self.app.close()


@contextlib.contextmanager
def running(
    directory: Path, broker: str, backend: str, processes: int = 2, **settings: object
) -> Iterator[Project]:
    """A project on SQLite, with a worker that the tests of a module share."""
    store_url = f"sqlite:///{directory}/store.sqlite3"
    project = Project(directory, broker, store_url, backend=backend, settings=settings)
    try:
        with project.worker("-c", str(processes)):
            yield project
    finally:
        project.close()


TASKS = (
    "succeed", "terminal", "exhausted", "recovers", "retries_itself", "rejects", "ignores",
    "hostile", "huge", "exits", "eats_memory", "is_killed", "hangs", "returns_a_file", "add",
    "member", "late", "innocent", "segfaults", "kills_its_worker", "dies_once", "waits", "waits_late",
    "total", "tell", "waits_for", "notes_its_run",
    "calls", "calls_late", "calls_once", "calls_one_of", "retried", "fails_late",
)  # fmt: skip


def _nothing_to_cancel(task_id: str) -> None:
    """Replaces a call that would use a closed connection."""


def _not_here(*args: object, **kwargs: object) -> None:
    raise AssertionError("runs in a worker only")


def stop(process: subprocess.Popen[bytes], log: Path) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        # A pool child may wait 30 s for its last result to be read (billiard, with any task class).
        process.wait(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise AssertionError(f"the worker did not stop:\n{log.read_text()[-4000:]}") from None
