"""Two workers on a Redis of their own, and what their tasks note. One of them is killed again and again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import redis
from celery import Celery
from sqlalchemy import text

from benchmarks.own_redis import own_redis
from benchmarks.side_by_side import make_store
from benchmarks.worker import Way, environment_of, wait
from celery_dlq import Filter, State
from celery_dlq.base.process import pid_of
from celery_dlq.store.sql import SQLStore

#: The shortest and the longest task, and the latest moment of a kill after the first task, in seconds.
BODY_S, LIFE_S = (0.1, 2.0), 1.5
#: Processes or threads of a worker, and messages that it reserves for each of them.
SLOTS, PREFETCH = 4, 2
QUEUE = "killed"


class Notes:
    """The lines that tasks and workers have written: of each kind and task, the writers and their times."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lines: dict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)

    def read(self) -> None:
        """Read new lines."""
        for line in iter(self._file.readline, ""):
            what, task_id, who, at = line.split()
            self._lines[what, task_id].append((who, float(at)))

    def count(self, what: str, task_id: str) -> int:
        """How many lines there are about a task."""
        return len(self._lines.get((what, task_id), ()))

    def have(self, what: str, task_ids: Iterable[str]) -> set[str]:
        """The tasks about which there is a line."""
        return {one for one in task_ids if self.count(what, one)}

    def of(self, worker: str, task_ids: Iterable[str]) -> tuple[set[str], set[str]]:
        """The tasks that ``worker`` runs, and those that wait in it."""
        left = self._by(worker, "received", task_ids) - self._by(worker, "ended", task_ids)
        running = self._by(worker, "began", left)
        return running, left - running

    def _by(self, worker: str, what: str, task_ids: Iterable[str]) -> set[str]:
        """The tasks about which ``worker`` has written a line."""
        return {
            one for one in task_ids for who, _ in self._lines.get((what, one), ()) if who == worker
        }

    def ended_before(self, at: float, worker: str, task_ids: Iterable[str]) -> dict[str, float]:
        """The seconds from the end of each task in ``worker`` to ``at``, if it ended before."""
        return {
            one: at - t
            for one in task_ids
            for who, t in self._lines.get(("ended", one), ())
            if who == worker and t < at
        }

    def after(self, at: float, what: str, task_ids: Iterable[str], but: str) -> dict[str, float]:
        """The seconds from ``at`` to the next line about each task that ``but`` has not written."""
        found = {}
        for one in task_ids:
            times = [t - at for who, t in self._lines.get((what, one), ()) if who != but and t > at]
            if times:
                found[one] = min(times)
        return found


@dataclass(frozen=True)
class Kill:
    """The tasks that a worker ran when it was killed, those that waited in it, and its leases."""

    at: float
    worker: str
    sent: list[str]
    running: set[str]
    reserved: set[str]
    leases: str
    notes: Notes

    @property
    def affected(self) -> set[str]:
        """All of its tasks that had not ended."""
        return self.running | self.reserved

    def again_s(self, task_ids: Iterable[str]) -> dict[str, float]:
        """Seconds from the kill until each of these tasks began, if it has."""
        return self.notes.after(self.at, "began", task_ids, self.worker)

    def lettered_s(self) -> dict[str, float]:
        """Seconds from the kill until each letter was stored."""
        return self.notes.after(self.at, "letter", self.affected, self.worker)

    def needless_s(self) -> dict[str, float]:
        """Seconds from the end of each task that began again all the same until the kill."""
        return self.notes.ended_before(self.at, self.worker, self.again_s(self.sent))

    def is_over(self) -> bool:
        """Whether all tasks have begun again."""
        self.notes.read()
        return len(self.again_s(self.affected)) == len(self.affected)


class Worker:
    """A worker whose processes are a group of their own."""

    def __init__(self, number: int, pool: str, environment: dict[str, str], place: Path) -> None:
        self.name, self.log = f"w{number}@bench", place / f"{number}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "benchmarks.killed_app", "worker", "-l", "INFO",
                 "-n", self.name, "--pool", pool, "-c", str(SLOTS), "--prefetch-multiplier", str(PREFETCH),
                 "--without-gossip", "--without-mingle"],
                env=environment, cwd=place, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def is_ready(self) -> bool:
        """Whether it takes messages."""
        if self.process.poll() is not None:
            sys.exit(f"a worker ended: {self.log.read_text(errors='replace')[-2000:]}")
        return b" ready." in self.log.read_bytes()

    def kill(self) -> None:
        """Kill it together with its pool."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Pair:
    """Two workers, and the tasks that were sent to them.

    :param timeout_s: the visibility timeout of plain Celery; None for DLQTask with the default one.
    """

    def __init__(
        self, pool: str, stack: contextlib.ExitStack, *, is_late: bool, timeout_s: int | None = None
    ) -> None:
        self.place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(own_redis(str(self.place)))
        self.client = stack.enter_context(redis.Redis.from_url(url))
        self._app = stack.enter_context(Celery("sender", broker=url, set_as_current=False))
        self.notes = Notes(stack.enter_context((self.place / "notes").open("w+")))
        self.sent, self._pool = list[str](), pool
        #: Tasks that are not waited for any more.
        self.given_up = set[str]()
        #: Messages that a worker holds at most.
        self._held = SLOTS * PREFETCH + (0 if is_late else SLOTS)
        self._store: SQLStore | None = None
        way = Way(acks_late=is_late, visibility_s=timeout_s)
        if timeout_s is None:
            way = Way(f"sqlite:///{self.place}/store.sqlite3", acks_late=is_late)
            make_store(way.store_url)
            self._store = SQLStore(way.store_url)
            stack.callback(self._store.close)
        self._environment = environment_of(way, QUEUE) | {
            "BENCH_BROKER": url, "BENCH_NOTES": str(self.place / "notes"),
        }  # fmt: skip
        self._started, self._workers = 0, list[Worker]()
        stack.callback(self._kill_all)
        self._fill_up()

    def kill_one(self) -> Kill:
        """Kill one of the workers while it runs tasks and others wait in it, and start another one. Each
        second time it is the older one, which has the leases."""
        wait(lambda: all(worker.is_ready() for worker in self._workers), every_s=0.1)
        victim = self._workers[self._started % 2]
        sent = self._send_until(victim.name)
        leases, at = self._leases_of(victim.process.pid), time.time()
        victim.kill()
        self._workers.remove(victim)
        self._fill_up()
        self.notes.read()
        running, reserved = self.notes.of(victim.name, sent)
        return Kill(at, victim.name, sent, running, reserved, leases, self.notes)

    def have_ended(self) -> bool:
        """Whether all tasks have ended, except those that were given up."""
        self.notes.read()
        return self.given_up.issuperset({*self.sent} - self.notes.have("ended", self.sent))

    def open_letters(self) -> set[str]:
        """The tasks whose letters are not resolved."""
        if self._store is None:
            return set()
        wanted = Filter(states=frozenset(State) - {State.RESOLVED})
        return {letter.task_id for letter in self._store.letters.find(wanted, limit=500).letters}

    def _kill_all(self) -> None:
        for worker in self._workers:
            worker.kill()

    def _fill_up(self) -> None:
        while len(self._workers) < 2:
            self._started += 1
            self._workers.append(Worker(self._started, self._pool, self._environment, self.place))

    def _send_until(self, victim: str) -> list[str]:
        """Send tasks until a random moment at which ``victim`` runs some of them and others wait in it."""

        def is_due() -> bool:
            self.notes.read()
            return all(self.notes.of(victim, sent))

        def have_ended() -> bool:
            self.notes.read()
            return len(self.notes.have("ended", sent)) == len(sent)

        while True:
            sent = [str(len(self.sent) + number) for number in range(2 * self._held)]
            self.sent += sent
            for one in sent:
                body = (random.uniform(*BODY_S),)
                self._app.send_task("bench.noted", body, task_id=one, queue=QUEUE)
            wait(lambda: is_due() or have_ended())
            time.sleep(random.uniform(0, LIFE_S))
            if is_due():
                return sent
            wait(have_ended)

    def _leases_of(self, pid: int) -> str:
        """The names of the leases that the process holds, for people."""
        if self._store is None:
            return ""
        with self._store.database.engine.connect() as connection:
            rows = connection.execute(text("SELECT name, holder FROM celery_dlq_lease")).all()
        kinds = {"parked": "upkeep", "auto": "automatic redrives"}
        held = {
            name.partition(".")[0]
            for name, holder in rows
            if pid_of(holder.rpartition("/")[0]) == pid
        }
        return " and ".join(kinds[kind] for kind in kinds if kind in held) or "no lease"


def within(seconds: float, ready: Callable[[], object]) -> bool:
    """Wait until ``ready`` is true; whether it became so within this time."""
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
