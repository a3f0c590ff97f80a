"""Where a scene plays: one project on one broker and pool, the messages sent on it, and their traces."""

from __future__ import annotations

import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from celery import Signature
from foreign_messages import MESSAGES, publish
from matrix.mode import Seen, Watched
from project import Project, wait_for
from queues import redis_options
from support.workers.processes import kill_with_its_pool

from celery_dlq import DeadLetter, Filter
from celery_dlq.recorder.segment import read
from celery_dlq.recorder.tags import noted_in
from celery_dlq.redrive.broker.queues import depth_of
from celery_dlq.worker.celery_quirks.unacked_redis import OnRedis

POOL_OPTIONS = {
    "prefork": ("-P", "prefork", "-c", "2"),
    "threads": ("-P", "threads", "-c", "2"),
    "solo": ("-P", "solo"),
    "gevent": ("-P", "gevent", "-c", "2"),
}


@dataclass
class Stage:
    """A project, the name of its broker, and its pool."""

    project: Project
    broker: str
    pool: str
    workers: list[Worker] = field(default_factory=list)
    _kinds: dict[str, str] = field(default_factory=dict)

    @property
    def slots(self) -> int:
        """How many tasks a worker runs at once."""
        return 1 if self.pool == "solo" else 2

    @property
    def directory(self) -> Path:
        return self.project.directory

    # What is sent.

    def task(self, name: str, *args: Any, **options: Any) -> Watched:
        """Send a task by its name."""
        return Watched(self.project.app.send_task(name, args, **options).id)

    def canvas(self, canvas: Signature, watched: str) -> Watched:
        """Send ``canvas``, to watch the part of it whose id is ``watched``."""
        canvas.apply_async()
        return Watched(watched)

    def signature(self, name: str, *args: Any, **options: Any) -> Signature:
        return self.project.app.signature(name, args=args, **options)

    def foreign(self, kind: str) -> Watched:
        """Send one of the messages that no worker can run."""
        publish(self.project.app, self.project.queue, kind)
        return Watched(MESSAGES[kind].task_id or "", kind)

    def declare_queue(self) -> None:
        """RabbitMQ drops messages to a queue that was not declared."""
        with self.project.app.connection_for_write() as connection:
            self.project.app.amqp.queues[self.project.queue](connection).declare()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Within this block, tasks that block continue."""
        release = self.directory / "release"
        release.touch()
        yield
        release.unlink()

    # Workers.

    @contextmanager
    def worker(self) -> Iterator[Worker]:
        """A worker that is ready."""
        with self.project.worker(*POOL_OPTIONS[self.pool]) as process:
            yield self._new(process)

    def worker_that_may_die(self) -> Worker:
        """A worker just started."""
        process, _ = self.project.start_worker(*POOL_OPTIONS[self.pool])
        return self._new(process)

    def _new(self, process: subprocess.Popen[bytes]) -> Worker:
        node = self.project.nodes[-1]
        log = self.directory / f"worker-{node.partition('@')[0]}.log"
        self.workers.append(Worker(node, process, log))
        return self.workers[-1]

    def revoke(self, task_id: str) -> None:
        """Revoke until the worker has heard it: on Redis, it misses commands from before it listens."""
        worker = self.workers[-1]

        def heard() -> bool:
            self.project.app.control.revoke(task_id, destination=[worker.node])
            time.sleep(0.5)
            return worker.says(f"Tasks flagged as revoked: {task_id}")

        wait_for("the worker to hear of the revocation", heard)

    def held(self) -> int:
        """Messages with workers, on SQS."""
        with self.project.app.connection_for_write() as connection:
            depth = depth_of(connection.default_channel, self.project.queue)
            return depth.held if depth else 0

    def all_noted(self) -> bool:
        """Whether the flight recorder has noted that the broker has forgotten each message that it holds. It
        looks once a second."""
        files = self.project.dlq.recorder_dir.glob("*/*.rec")
        entries = (entry for file in files for entry in read(file.read_bytes()).entries)
        return all(entry.is_acknowledged for entry in entries)

    # What is left.

    def letters(self) -> list[DeadLetter]:
        found, after = [], None
        while True:
            page = self.project.dlq.store.letters.find(Filter(), limit=500, after=after)
            found += page.letters
            after = page.next
            if after is None:
                return found

    def seen(self, watched: Watched, letters: list[DeadLetter]) -> Seen:
        """The traces of one message so far."""
        its = [letter for letter in letters if self._is_of(letter, watched)]
        result = self._result(watched.task_id)
        return Seen(
            letters=tuple((it.reason, it.exception_type, it.attempt_count) for it in its),
            result=result,
            runs=self.counted(f"started-{watched.task_id}"),
            finished=result == "SUCCESS" or self.counted(f"finished-{watched.task_id}") > 0,
            raised=self.counted(f"raised-{watched.task_id}") > 0,
        )

    def _is_of(self, letter: DeadLetter, watched: Watched) -> bool:
        if watched.kind:
            return self._kind(letter.task_id) == watched.kind
        return letter.task_id == watched.task_id

    def _kind(self, task_id: str) -> str:
        """The ``type`` of a letter's message, which a list leaves out and nothing changes."""
        if task_id not in self._kinds:
            letter = self.project.letter(task_id)
            assert letter
            self._kinds[task_id] = letter.envelope.properties.get("type", "")
        return self._kinds[task_id]

    def counted(self, name: str) -> int:
        path = self.directory / f"count-{name}"
        return path.stat().st_size if path.exists() else 0

    def _result(self, task_id: str) -> str:
        if not self.project.backend or not task_id:
            return "PENDING"
        return str(self.project.app.backend.get_task_meta(task_id, cache=False)["status"])

    def waiting(self) -> int:
        """Messages on the queue or with a worker."""
        with self.project.app.connection_for_write() as connection:
            channel = connection.default_channel
            if self.broker == "sqs":
                return sum(depth_of(channel, self.project.queue) or ())
            if self.broker != "redis":
                return int(channel.queue_declare(self.project.queue, passive=True).message_count)
            size = channel._size(self.project.queue)
            with channel.conn_or_acquire() as client:
                return int(size + client.hlen(redis_options(self.project.queue)["unacked_key"]))

    def time_out_deliveries(self) -> None:
        """Redis hands unacknowledged messages out again when the visibility timeout has passed; here it
        passes at once. RabbitMQ does so as soon as the connection is gone. The messages that a killed worker
        has noted are left alone: the next worker gives them back, and would do so again if it had one."""
        if self.broker != "redis":
            return
        with self.project.app.connection_for_write() as connection:
            channel = connection.default_channel
            directories = self.project.dlq.recorder_dir.glob("*/")
            broker = OnRedis.broker_of(channel)
            noted = {one.tag for directory in directories for one in noted_in(directory, broker)}
            with channel.conn_or_acquire() as client:
                tags = [tag.decode() for tag in client.zrange(channel.unacked_index_key, 0, -1)]
            for tag in tags:
                if tag not in noted:
                    channel.qos.restore_by_tag(tag)


@dataclass(frozen=True)
class Worker:
    """One worker process."""

    #: Its name for remote control.
    node: str
    process: subprocess.Popen[bytes]
    log: Path

    def says(self, words: str) -> bool:
        return words in self.log.read_text(errors="replace")

    def wait_to_say(self, words: str) -> None:
        wait_for(f"{self.node} to say {words!r}", lambda: self.says(words))

    def kill(self) -> None:
        """As the kernel does, without notice."""
        kill_with_its_pool(self.process)

    def stop_warm(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.wait_to_say("Warm shutdown")

    def stop_cold(self) -> None:
        self.process.send_signal(signal.SIGQUIT)

    def wait_to_end(self) -> int:
        return self.process.wait(timeout=60)


def make_project(directory: Path, broker: str, urls: dict[str, str], **options: Any) -> Project:
    """The project of a stage; ``options`` are fields of it."""
    queue = f"dlq-test-{uuid.uuid4().hex[:12]}"
    return Project(
        directory,
        urls[broker if broker in urls else "rabbitmq"],
        urls["store"],
        queue=queue,
        queue_type="quorum" if broker == "quorum" else "classic",
        module="matrix.app",
        **{"backend": urls["backend"], **options},
    )
