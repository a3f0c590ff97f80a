"""Runs the tasks of a test in a real worker with processes of its own. As a program, it is that worker."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from celery import signals
from celery.app.utils import find_app

from celery_dlq.testing.dead_letters import DeadLetters, under_test

#: Seconds that the worker may take to start, and to stop.
_PATIENCE_S = 60.0

#: The most characters of a worker's log in an error.
_LOG_SHOWN = 2_000

_QUIET = ("--without-gossip", "--without-mingle", "--loglevel=INFO")


class WorkerStarter:
    """What the fixture ``dlq_worker`` is: called once, it starts the worker of a test."""

    def __init__(self, directory: Path, stack: contextlib.ExitStack) -> None:
        self._directory, self._stack = directory, stack

    def __call__(self, app: str, *options: str, broker: str) -> DeadLetters:
        """Start a worker, and wait until it runs; it is stopped after the test. Returns its dead letters.

        :param app: the app, as ``celery -A`` takes it.
        :param options: of ``celery worker``.
        :param broker: URL of a broker of the tests' own: its messages run.
        :raises RuntimeError: the worker did not start; the error has the end of its log.
        """
        found = find_app(app)
        settings = _settings(self._directory, broker)
        letters = self._stack.enter_context(under_test(found, self._directory, settings))
        self._stack.enter_context(_running(app, self._directory, broker, options))
        return letters


def _settings(directory: Path, broker: str) -> dict[str, Any]:
    urls = dict.fromkeys(("broker_url", "broker_read_url", "broker_write_url"), broker)
    return {**urls, "result_backend": f"db+sqlite:///{directory}/results.sqlite3"}


@contextlib.contextmanager
def _running(app: str, directory: Path, broker: str, options: tuple[str, ...]) -> Iterator[None]:
    ready, log = directory / "ready", directory / "worker.log"
    program = [sys.executable, "-m", __name__, app, str(directory), broker, *_QUIET, *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with log.open("wb") as file:
        process = subprocess.Popen(  # noqa: S603 - the test names the program
            program, env=environment, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        _wait_until_ready(process, ready, log)
        yield
    finally:
        _stop(process)


def _wait_until_ready(process: subprocess.Popen[bytes], ready: Path, log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(
                f"the worker did not start; its log {log} ends with:\n{log.read_text()[-_LOG_SHOWN:]}"
            )
        time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main(name: str, directory: str, broker: str, *options: str) -> None:
    """Be the worker."""
    app, place = find_app(name), Path(directory)

    def note_ready(**_: Any) -> None:
        (place / "ready").touch()

    signals.worker_ready.connect(note_ready)
    with under_test(app, place, _settings(place, broker)):
        app.worker_main(["worker", *options])


if __name__ == "__main__":
    main(*sys.argv[1:])
