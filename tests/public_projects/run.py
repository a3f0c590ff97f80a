"""Adopts this package in public projects, runs their own tests, lets their tasks fail, and writes the page:
``python -m public_projects.run [NAME]...``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from public_projects.environment import Environment, NotInstalled
from public_projects.page import PAGE, Result, page, save, saved
from public_projects.table import PROJECTS, Project
from support.workers.host_suites import Comparison

#: Own tests must pass without this package, but for those that need what the distribution does not have.
_HEALTHY = 0.85


def main(names: list[str]) -> int:
    """The exit status: 0 if everything is as expected, 1 if not, 2 if a name is unknown."""
    if unknown := sorted(set(names) - set(PROJECTS)):
        print(f"Unknown: {', '.join(unknown)}. There are: {', '.join(PROJECTS)}.", file=sys.stderr)
        return 2
    wrong = [name for name in names or PROJECTS if not _run(PROJECTS[name])]
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    PAGE.write_text(page(before, saved()), encoding="utf-8")
    return 1 if wrong else 0


def _run(project: Project) -> bool:
    """Whether the project behaves as expected."""
    print(f"== {project.name} {project.version}", flush=True)
    environment = Environment(project)
    try:
        seconds = environment.install()
        trees = ("plain", "adopted")
        plain, ours = [environment.own_tests(tree) if project.tests else {} for tree in trees]
        played = environment.play()
    except NotInstalled as error:
        print(f"{project.name}: {error}", file=sys.stderr)
        return False
    compared = Comparison(
        release=f"{project.name} {project.version}", plain=plain, ours=ours, healthy=_HEALTHY
    )
    wrong = [*compared.problems(project.expected), *problems(played)]
    print("\n".join([compared.summary, *wrong]), flush=True)
    save(_result(project, compared, played, seconds))
    return not wrong


def problems(played: Mapping[str, Any]) -> list[str]:
    """What is wrong with the letters, a line each."""
    found = []
    for letter in played["letters"]:
        expected = letter["expected"]
        seen = {
            "exception": letter["exception_type"].rpartition(".")[2],
            "verdict": letter["verdict"],
            "reason": letter["reason"],
        }
        if seen != expected:
            found.append(f"{letter['task']}: {seen} instead of {expected}: {letter['message']}")
        if letter["state"] != "resolved":
            found.append(
                f"{letter['task']}: {letter['state']} after its redrive: {letter['again']}"
            )
    if not played["secret_sent"]:
        found.append("No message carries the secret.")
    if played["secret_shown"]:
        found.append("A screen shows the secret.")
    return found


def _result(
    project: Project, compared: Comparison, played: Mapping[str, Any], seconds: float
) -> Result:
    letters = played["letters"]
    return Result(
        project.name, project.version, project.kind, project.has, project.lines_changed,
        passed_before=_passed(compared.plain.values()),
        passed_after=_passed(compared.ours.values()),
        differ=len(compared.differences),
        letters=len(letters),
        groups=played["groups"],
        redriven=sum(letter["state"] == "resolved" for letter in letters),
        seconds=seconds + played["first_letter_s"],
        date=datetime.now(timezone.utc).date().isoformat(),
        causes=tuple(
            (one["task"], one["exception_type"], f"{one['verdict']}, {one['reason']}", one["rule"])
            for one in letters
        ),
        expected=dict(project.expected),
    )  # fmt: skip


def _passed(outcomes: Iterable[str]) -> int:
    return sum(outcome == "passed" for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
