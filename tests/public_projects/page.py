"""Writes ``docs/reference/projects.md`` from the results; projects without a new one keep their row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from public_projects.environment import CACHE, ROOT

PAGE = ROOT / "docs" / "reference" / "projects.md"
RESULTS = CACHE / "results"

INTRODUCTION = """\
# Public projects

Public projects in which this package was adopted, as [the page about
adopting](../howto/adopt-in-an-existing-project.md) says. The page is generated: `make projects` installs
each of them from PyPI, under `.cache`, and writes the page. A choice, such as `make projects
PROJECTS="girder_worker"`, leaves the rows of the others as they are.

- *Lines changed*: lines of the project, and of the app that runs it, that adopting changes or adds, without
  settings.
- *Own tests*: the tests of tasks that its source distribution has, before and after. *Differ* counts those
  that end otherwise after it.
- *Letters*: five messages to tasks of the project, which fail in a worker. Each must become a letter with
  the expected exception, verdict and reason. No screen may show the secret that one of them carries. After
  the cause is removed, `dlq redrive` must bring each to success.
- *Seconds*: for the installation, and from the start until the first letter. The machine was busy with
  other work.
"""

_COLUMNS = (
    "project", "version", "kind", "what its tasks have", "lines changed", "own tests", "differ", "letters",
    "groups", "redriven", "seconds", "day",
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What was seen in a project."""

    name: str
    version: str
    kind: str
    has: str
    lines_changed: int
    passed_before: int
    passed_after: int
    differ: int
    letters: int
    groups: int
    redriven: int
    #: Until the first letter, beginning with the installation.
    seconds: float
    #: The day of the run, such as ``2026-11-29``.
    date: str
    #: What each letter says: task, exception, verdict and reason, rule.
    causes: tuple[tuple[str, str, str, str], ...]
    #: Reason to the tests that end otherwise for it.
    expected: Mapping[str, tuple[str, ...]]


def save(result: Result, directory: Path = RESULTS) -> None:
    """Write ``result``, instead of the earlier one of this project."""
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(result), indent=2) + "\n"
    (directory / f"{result.name}.json").write_text(text, encoding="utf-8")


def saved(directory: Path = RESULTS) -> Iterator[Result]:
    """All results, by name."""
    for path in sorted(directory.glob("*.json")):
        yield Result(**json.loads(path.read_text(encoding="utf-8")))


def page(before: str, results: Iterable[Result]) -> str:
    """The text of the page.

    :param before: its text until now.
    """
    rows, parts = _parts(before)
    for result in results:
        rows[result.name], parts[result.name] = _row(_cells(result)), _part(result)
    head = [_row(_COLUMNS), _row(["---"] * len(_COLUMNS))]
    table = "\n".join([*head, *(rows[name] for name in sorted(rows))])
    return "\n".join(
        [INTRODUCTION, table, "", "## Letters", *(parts[name] for name in sorted(parts))]
    )


def _cells(result: Result) -> list[str]:
    tests = (
        f"{result.passed_before} and {result.passed_after} pass"
        if result.passed_before
        else "has none"
    )
    return [
        f"`{result.name}`", result.version, result.kind, result.has, str(result.lines_changed), tests,
        str(result.differ), str(result.letters), str(result.groups), str(result.redriven),
        f"{result.seconds:.0f}", result.date,
    ]  # fmt: skip


def _part(result: Result) -> str:
    """What its letters say, and why tests end otherwise."""
    lines = [
        "", f"### {result.name}", "",
        "| task | exception | verdict and reason | rule |", "| --- | --- | --- | --- |",
        *(_row(f"`{cell}`" if at != 2 else cell for at, cell in enumerate(cause)) for cause in result.causes),
    ]  # fmt: skip
    for reason, tests in result.expected.items():
        lines += [
            "",
            f"Tests that end otherwise, because {reason}: {', '.join(f'`{test}`' for test in tests)}.",
        ]
    return "\n".join(lines) + "\n"


def _parts(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """The row and the section of each project in ``text``."""
    table, _, letters = text.partition("\n## Letters\n")
    rows = {line.split("`")[1]: line for line in table.splitlines() if line.startswith("| `")}
    sections = re.split(r"(?m)^### ", letters)[1:]
    return rows, {part.split("\n")[0]: f"\n### {part.rstrip()}\n" for part in sections}


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
