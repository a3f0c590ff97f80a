"""The workers, started again whenever a harm, or an error, has ended them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from support.workers.processes import children, with_parent

STOP_PATIENCE_S = 90.0
START_PATIENCE_S = 240.0
#: Celery's own error if a process of the pool is gone when the event loop begins.
NO_POOL = "Could not start worker processes"
#: The words of the stall watch.
STALLED = b"this worker is stalled"
TESTS = Path(__file__).parents[1]


class Worker:
    """One of the workers: with the same name and log after each restart."""

    def __init__(self, number: int, directory: Path, environment: Mapping[str, str]) -> None:
        self.name = f"worker{number}"
        self.log = directory / f"{self.name}.log"
        self._directory, self._environment = directory, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def start(self) -> None:
        command = [
            sys.executable, "-m", "celery", "-A", "chaos.workload", "worker", "-n", f"{self.name}@%h",
            "-c", "2", "-l", "INFO",
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                with_parent(command), env=dict(self._environment), cwd=self._directory,
                stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def ended(self) -> int | None:
        """Its exit status once it has ended."""
        return self._process.poll() if self._process else None

    @property
    def pool(self) -> list[int]:
        """Its pool's processes."""
        return children(self.pid)

    @property
    def is_ready(self) -> bool:
        """Whether it has reached its broker since it was last started."""
        return self.has_said(" ready.")

    def has_said(self, text: str) -> bool:
        """Whether ``text`` is in its log since it was last started."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return text.encode() in log.read()

    def signal(self, number: int) -> None:
        if self.ended is None:
            os.kill(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within ``seconds``."""
        assert self._process is not None
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait(STOP_PATIENCE_S)


class Workers:
    """All of them. A harm that ends one starts it again; :meth:`revive` notes
    the others."""

    def __init__(self, count: int, directory: Path, environment: Mapping[str, str]) -> None:
        self.all = [Worker(number + 1, directory, environment) for number in range(count)]
        #: In words, the ends for which no harm is the cause.
        self.unasked: list[str] = []
        #: How often one ended by itself when its broker went away, as Celery's sometimes do.
        self.gave_up = 0
        #: How often one ended by itself because a harm killed its pool before the pool had started.
        self.had_no_pool = 0

    def start(self) -> None:
        for worker in self.all:
            worker.start()
        deadline = time.monotonic() + START_PATIENCE_S
        for worker in self.all:
            while not worker.is_ready:
                assert worker.ended is None, worker.log.read_text(errors="replace")[-3000:]
                assert time.monotonic() < deadline, f"{worker.name} does not start: {worker.log}"
                time.sleep(0.05)

    def revive(self, *, cut: bool) -> None:
        """Start again those that have ended by themselves, and note it.

        :param cut: whether the broker has just been away.
        """
        for worker in self.all:
            if worker.ended is None:
                continue
            if cut:
                self.gave_up += 1
            elif worker.has_said(NO_POOL):
                self.had_no_pool += 1
            else:
                self.unasked.append(
                    f"{worker.name} ended with status {worker.ended}; see {worker.log}"
                )
            worker.start()

    def stalls(self) -> int:
        """How often one has said that it was stalled."""
        return sum(worker.log.read_bytes().count(STALLED) for worker in self.all)

    def stop(self) -> None:
        """A warm shutdown; one that takes too long is noted, and killed."""
        for worker in self.all:
            worker.signal(signal.SIGTERM)
        for worker in self.all:
            if not worker.wait(STOP_PATIENCE_S):
                self.unasked.append(f"{worker.name} did not stop; see {worker.log}")
        self.kill()

    def kill(self) -> None:
        for worker in self.all:
            if worker.ended is None:
                worker.kill()
