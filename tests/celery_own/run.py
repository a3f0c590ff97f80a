"""Runs Celery's own tests with its plain Task and with DLQTask as the default task class.

Run ``python -m celery_own.run`` with this file's grandparent directory as PYTHONPATH. It ends with 1
when a test ends otherwise with DLQTask and :mod:`celery_own.expected_differences` does not say why,
and when it says so of a test that ends the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from celery_own.expected_differences import EXPECTED_DIFFERENCES

TESTS = (
    "t/unit/tasks/test_tasks.py",
    "t/unit/tasks/test_canvas.py",
    "t/unit/tasks/test_chord.py",
    "t/unit/tasks/test_context.py",
    "t/unit/tasks/test_trace.py",
    "t/unit/worker/test_request.py",
    "t/unit/worker/test_strategy.py",
    "t/unit/app/test_app.py",
    "t/unit/app/test_builtins.py",
)

_ROOT = Path(__file__).parents[2]
_CACHE = _ROOT / ".cache" / "celery-own"
_TIME_LIMIT_S = 300

#: The share of tests that must pass with the plain Task; what lacks a library fails with both.
_HEALTHY = 0.99

Outcomes = Mapping[str, str]


def main() -> int:
    """Compare, print, and return the exit code."""
    source = unpacked(version("celery"))
    plain, ours = run_both(source)
    print(summary(plain, ours))
    wrong = problems(plain, ours, EXPECTED_DIFFERENCES)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


def unpacked(release: str) -> Path:
    """The directory with the tests of a release of Celery, from its source distribution."""
    source = _CACHE / f"celery-{release}"
    if source.exists():
        return source
    _CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE) as directory:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run(
            [*pip, "--no-binary", "celery", "--dest", directory, f"celery=={release}"], check=True
        )
        [path] = Path(directory).glob("*.tar.gz")
        # Its own package stays out: the installed one is tested.
        wanted = (f"{source.name}/t/", f"{source.name}/pyproject.toml")
        with tarfile.open(path) as archive:
            members = [item for item in archive if item.name.startswith(wanted)]
            archive.extractall(directory, members, filter="data")
        (Path(directory) / source.name).rename(source)
    return source


def run_both(source: Path) -> tuple[Outcomes, Outcomes]:
    """How each test ends with the plain Task and with DLQTask."""
    with tempfile.TemporaryDirectory() as directory:
        runs = [
            _Run(source, Path(directory) / "plain"),
            _Run(source, Path(directory) / "ours", "-p", "celery_own.dlq_by_default"),
        ]
        try:
            plain, ours = (run.outcomes() for run in runs)
        finally:
            for run in runs:
                run.stop()
    return plain, ours


class _Run:
    """A pytest process; they run side by side."""

    def __init__(self, source: Path, files: Path, *options: str) -> None:
        self._outcomes, self._log = files.with_suffix(".json"), files.with_suffix(".log")
        # The gate's own pytest plugins, such as random order, would make two runs differ.
        environ = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
        environ |= {
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(_ROOT / "tests"),
            "CELERY_OWN_OUTCOMES": str(self._outcomes),
        }
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*pytest, "-p", "celery_own.report_outcomes", *options, *TESTS],
                cwd=source, env=environ, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def outcomes(self) -> Outcomes:
        """Wait, and return how each test ended.

        :raises RuntimeError: pytest did not run the tests.
        """
        code = self._process.wait(_TIME_LIMIT_S)
        if code not in (0, 1):
            raise RuntimeError(f"pytest ended with {code}:\n{self._log.read_text()[-5_000:]}")
        outcomes: Outcomes = json.loads(self._outcomes.read_text())
        return outcomes

    def stop(self) -> None:
        """End what still runs."""
        self._process.kill()
        self._process.wait()


def problems(plain: Outcomes, ours: Outcomes, expected: Mapping[str, tuple[str, ...]]) -> list[str]:
    """What is wrong, a line each; nothing when all is as expected."""
    reasons = {test: reason for reason, tests in expected.items() for test in tests}
    found = differences(plain, ours)
    unhealthy = _count(plain, "passed") < _HEALTHY * len(plain)
    return [
        *(["Celery's tests do not pass with its own Task: is a library missing?"] * unhealthy),
        *(
            f"{test}: {plain.get(test)} with Task, {ours.get(test)} with DLQTask"
            for test in sorted(found - reasons.keys())
        ),
        *(
            f"{test}: ends the same, but is expected to differ: {reason}"
            for test, reason in reasons.items()
            if test in plain and test not in found
        ),
    ]


def differences(plain: Outcomes, ours: Outcomes) -> set[str]:
    """The tests that do not end alike."""
    return {test for test in {*plain, *ours} if plain.get(test) != ours.get(test)}


def summary(plain: Outcomes, ours: Outcomes) -> str:
    """One line of figures."""
    different = len(differences(plain, ours))
    return (
        f"Celery {version('celery')}: {len(plain)} tests, {_count(plain, 'passed')} pass with Task, "
        f"{_count(ours, 'passed')} with DLQTask, {different} differ"
    )


def _count(outcomes: Outcomes, outcome: str) -> int:
    return sum(1 for one in outcomes.values() if one == outcome)


if __name__ == "__main__":
    sys.exit(main())
