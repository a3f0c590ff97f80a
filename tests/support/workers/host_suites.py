"""Runs a package's own tests twice, as they are and with a plugin of ours, and compares how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[3]
_TIME_LIMIT_S = 300

#: How each test ended.
Outcomes = Mapping[str, str]
#: Reason to the tests that end otherwise with us for it.
Expected = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Whose tests, and how they ended."""

    #: As it is installed, such as ``celery 5.7.0``.
    release: str
    plain: Outcomes
    ours: Outcomes
    #: The share of tests that must pass without us; what lacks a library fails with both.
    healthy: float = 0.99

    @property
    def differences(self) -> set[str]:
        """The tests that do not end alike."""
        names = {*self.plain, *self.ours}
        return {test for test in names if self.plain.get(test) != self.ours.get(test)}

    @property
    def summary(self) -> str:
        """One line of figures."""
        return (
            f"{self.release}: {len(self.plain)} tests, {_count(self.plain, 'passed')} pass without us, "
            f"{_count(self.ours, 'passed')} with us, {len(self.differences)} differ"
        )

    def problems(self, expected: Expected) -> list[str]:
        """What is wrong, a line each; nothing when all is as expected."""
        reasons = {test: reason for reason, tests in expected.items() for test in tests}
        found = self.differences
        unhealthy = _count(self.plain, "passed") < self.healthy * len(self.plain)
        return [
            *([f"The tests of {self.release} do not pass: is a library missing?"] * unhealthy),
            *(
                f"{test}: {self.plain.get(test)} without us, {self.ours.get(test)} with us"
                for test in sorted(found - reasons.keys())
            ),
            *(
                f"{test}: ends the same, but is expected to differ: {reason}"
                for test, reason in reasons.items()
                if test in self.plain and test not in found
            ),
        ]

    def report(self, expected: Expected) -> int:
        """Print it, and return the exit code."""
        wrong = self.problems(expected)
        print("\n".join([self.summary, *wrong]))
        return 1 if wrong else 0


def unpacked(package: str, release: str, wanted: Sequence[str]) -> Path:
    """The directory with the tests of a release, from its source distribution.

    :param wanted: what is needed of it. Its own package is not: the installed one is tested.
    """
    cache = _ROOT / ".cache" / f"{package}-own"
    source = cache / f"{package}-{release}"
    if source.exists():
        return source
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as directory:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run(
            [*pip, "--no-binary", package, "--dest", directory, f"{package}=={release}"], check=True
        )
        [path] = Path(directory).glob("*.tar.gz")
        beginnings = tuple(f"{source.name}/{name}" for name in wanted)
        with tarfile.open(path) as archive:
            members = [item for item in archive if item.name.startswith(beginnings)]
            archive.extractall(directory, members, filter="data")
        (Path(directory) / source.name).rename(source)
    return source


def run_both(release: str, source: Path, tests: Sequence[str], plugin: str) -> Comparison:
    """Run ``tests`` in ``source`` without and with the pytest plugin ``plugin``."""
    with tempfile.TemporaryDirectory() as directory:
        runs = [
            _Run(source, Path(directory) / "plain", *tests),
            _Run(source, Path(directory) / "ours", "-p", plugin, *tests),
        ]
        try:
            plain, ours = (run.outcomes() for run in runs)
        finally:
            for run in runs:
                run.stop()
    return Comparison(release=release, plain=plain, ours=ours)


class _Run:
    """A pytest process; they run side by side."""

    def __init__(self, source: Path, files: Path, *options: str) -> None:
        self._outcomes, self._log = files.with_suffix(".json"), files.with_suffix(".log")
        # The gate's own pytest plugins, such as random order, would make two runs differ.
        environ = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
        environ |= {
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": os.pathsep.join([str(_ROOT / "tests"), str(_ROOT)]),
            "REPORTED_OUTCOMES": str(self._outcomes),
            # Tornado's test cases give up after five seconds, which a busy machine may well take.
            "ASYNC_TEST_TIMEOUT": "60",
        }
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*pytest, "-p", "support.workers.report_outcomes", *options],
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


def _count(outcomes: Outcomes, outcome: str) -> int:
    return sum(1 for one in outcomes.values() if one == outcome)
