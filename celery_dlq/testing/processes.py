"""Runs the tasks of a test in a real worker with processes of its own. As a program, it is that worker."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from celery.app.utils import find_app

from celery_dlq.testing.dead_letters import DeadLetters, under_test

#: Seconds that the worker may take to start, and to stop.
_PATIENCE_S = 60.0

#: The most characters of a worker's log in an error.
_LOG_SHOWN = 2_000


@contextlib.contextmanager
def in_processes(directory: Path) -> Iterator[Callable[..., DeadLetters]]:
    """A function that starts a worker, and returns the dead letters of its app. The worker is stopped at the
    end of this block."""
    with contextlib.ExitStack() as stack:

        def start(app: str, *options: str, broker: str) -> DeadLetters:
            """Start a worker, and wait until it runs.

            :param app: the app, as ``celery -A`` takes it.
            :param options: of ``celery worker``.
            :param broker: URL of a broker of the tests' own, because the worker takes all messages.
            :raises RuntimeError: the worker did not start; the error has the end of its log.
            """
            letters = stack.enter_context(_on(broker, app, directory))
            stack.enter_context(_running(directory, broker, app, *options))
            return letters

        yield start


def _on(broker: str, app: str, directory: Path) -> contextlib.AbstractContextManager[DeadLetters]:
    urls = dict.fromkeys(("broker_url", "broker_read_url", "broker_write_url"), broker)
    results = f"db+sqlite:///{directory}/results.sqlite3"
    return under_test(find_app(app), directory, {**urls, "result_backend": results})


@contextlib.contextmanager
def _running(directory: Path, *words: str) -> Iterator[None]:
    log = directory / "worker.log"
    with log.open("wb") as file:
        process = subprocess.Popen(  # noqa: S603 - the test names the program
            [sys.executable, "-m", __name__, str(directory), *words],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_ready(process, log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(_PATIENCE_S)
        finally:
            process.kill()


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while " ready." not in (text := log.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the worker did not start; its log {log}:\n{text[-_LOG_SHOWN:]}")
        time.sleep(0.05)


def main(directory: str, broker: str, app: str, *options: str) -> None:
    """Be the worker."""
    with _on(broker, app, Path(directory)) as letters:
        quiet = ("--loglevel=INFO", "--without-gossip", "--without-mingle")
        letters.queue.app.worker_main(["worker", *quiet, *options])


if __name__ == "__main__":
    main(*sys.argv[1:])
