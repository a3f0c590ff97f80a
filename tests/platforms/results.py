"""What was seen on a platform: one JSON file for each suite of tests that ran on it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]

#: Everything that `make platforms` sets up and writes.
CACHE = ROOT / ".cache" / "platforms"

RESULTS = CACHE / "results"


@dataclass(frozen=True)
class Result:
    """One suite of tests that ran on a platform."""

    #: ``server`` or ``python``.
    kind: str
    #: The name by which `make platforms` chooses it, such as ``mysql-9``.
    name: str
    #: The exact version, as the platform gives it itself, such as ``9.7.4``.
    version: str
    #: The tests, in words, such as ``the tests of the store``.
    what: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    #: The day of the run, such as ``2026-11-28``.
    date: str


@dataclass(frozen=True)
class Counts:
    """How many tests ended in each way, and how long all of them took."""

    passed: int
    failed: int
    skipped: int
    seconds: float


def counts_of(report: Path) -> Counts:
    """The counts of a run of pytest with ``--junitxml``."""
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))

    def total(name: str) -> int:
        return sum(int(suite.get(name, 0)) for suite in suites)

    failed, skipped = total("failures") + total("errors"), total("skipped")
    seconds = sum(float(suite.get("time", 0)) for suite in suites)
    return Counts(total("tests") - failed - skipped, failed, skipped, round(seconds, 1))


def save(result: Result, directory: Path = RESULTS) -> None:
    """Write ``result``, instead of the earlier one of this suite on this platform."""
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(result), indent=2) + "\n"
    (directory / _file_name(result)).write_text(text, encoding="utf-8")


def saved(directory: Path = RESULTS) -> Iterator[Result]:
    """All results, by the names of their files."""
    for path in sorted(directory.glob("*.json")):
        yield Result(**json.loads(path.read_text(encoding="utf-8")))


def _file_name(result: Result) -> str:
    words = re.sub(r"[^a-z0-9.]+", "-", f"{result.name} {result.what}".lower()).strip("-")
    return f"{words}.json"
