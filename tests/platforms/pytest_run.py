"""Runs tests on a platform, and counts how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

from platforms.results import CACHE, ROOT, Result, counts_of
from support.workers.processes import with_parent

#: Seconds for pytest to end its fixtures after Ctrl-C.
_PATIENCE_S = 60


class NotRun(Exception):
    """pytest ended without having run the tests."""


def run_tests(
    kind: str,
    name: str,
    version: str,
    what: str,
    choice: Sequence[str],
    environment: Mapping[str, str],
    python: Sequence[str] = (sys.executable,),
) -> Result:
    """The result of the tests that ``choice``, arguments of pytest, names.

    :param environment: more variables for them.
    :raises NotRun: they did not run.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    # Not in /tmp, because a suite of Debian has its own.
    with tempfile.TemporaryDirectory(prefix="report-", dir=CACHE) as beside:
        report = Path(beside, "report.xml")
        command = [
            *python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:randomly",
            f"--junitxml={report}", *choice,
        ]  # fmt: skip
        # A service that is missing is a failure, and not a test less.
        variables = {**os.environ, "CI": "true", "PYTHONPATH": str(ROOT), **environment}
        status = _run(command, variables)
        if not report.exists():
            raise NotRun(
                f"{name}: pytest ended with {status} before it ran {what}; read its output."
            )
        counts = counts_of(report)
    return Result(
        kind=kind, name=name, version=version, what=what,
        date=datetime.now(timezone.utc).date().isoformat(), **asdict(counts),
    )  # fmt: skip


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The exit status. Ctrl-C reaches pytest once, through this process, so that it ends its fixtures."""
    with subprocess.Popen(
        with_parent(command), cwd=ROOT, env=environment, start_new_session=True
    ) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_PATIENCE_S)
            finally:
                process.kill()
            raise
