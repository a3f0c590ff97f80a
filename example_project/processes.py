"""The commands of the demo, which are shown and run, and its worker in the background."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console

from example_project.celery_app import DIRECTORY

LOG = DIRECTORY / "worker.log"

_APP = ("-A", "example_project.celery_app")
_STOP_PATIENCE_S = 30
_LOOK_AGAIN_S = 0.05


class DemoError(Exception):
    """The demo cannot go on, or did not end as it should."""


class Interruption:
    """Whether a signal has asked the demo to end.

    The signal's handler only notes it, because Python swallows an exception that is raised while it
    destroys an object.
    """

    def __init__(self) -> None:
        self._asked = False

    def ask(self, _number: int, _frame: object) -> None:
        """The handler of the signals."""
        self._asked = True

    def check(self) -> None:
        """:raises KeyboardInterrupt: the demo is to end."""
        if self._asked:
            raise KeyboardInterrupt


interruption = Interruption()


def dlq(console: Console, *words: str, environment: Mapping[str, str] | None = None) -> None:
    """Show and run a command of ``celery dlq``, with ``environment`` on top of the demo's own.

    :raises DemoError: its exit status is not 0.
    """
    settings = environment or {}
    _show(console, "dlq", *words, before=_assignments(settings))
    with subprocess.Popen(_command("dlq", *words), env={**os.environ, **settings}) as process:
        try:
            while process.poll() is None:
                interruption.check()
                time.sleep(_LOOK_AGAIN_S)
        except KeyboardInterrupt:
            process.terminate()
            raise
    if process.returncode:
        raise DemoError(f"The command ended with exit status {process.returncode}.")


@contextlib.contextmanager
def worker(
    console: Console, environment: Mapping[str, str], *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker with ``environment`` on top of the demo's own, for as long as the block runs."""
    words = (
        "worker",
        "--concurrency",
        "2",
        "--loglevel",
        "INFO",
        "--without-gossip",
        "--without-mingle",
        *options,
    )
    _show(console, *words, before=_assignments(environment), after=f">> {LOG} 2>&1 &")
    with LOG.open("ab") as log:
        process = subprocess.Popen(
            _command(*words),
            env={**os.environ, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
            # Ctrl-C is for the demo, which then stops the worker in an orderly way.
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise DemoError(f"The worker did not stop in {_STOP_PATIENCE_S} seconds.") from None
    finally:
        # Nothing is left if the worker stopped; if it did not, this kills the whole process group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def log_tail(path: Path = LOG, lines: int = 20) -> str:
    """The last lines of the worker's log."""
    text = path.read_text(errors="replace") if path.exists() else ""
    return "\n".join(text.splitlines()[-lines:])


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "celery", *_APP, *words]


def _assignments(environment: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in environment.items())


def _show(console: Console, *words: str, before: str = "", after: str = "") -> None:
    line = " ".join(filter(None, (before, shlex.join(("celery", *_APP, *words)), after)))
    console.print(f"\n$ {line}", style="bold cyan", markup=False, highlight=False, soft_wrap=True)
