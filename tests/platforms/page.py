"""Writes ``docs/reference/platforms.md`` from the results: ``python -m platforms.page``. Platforms without a
new result keep the rows that the page has already, so that a run of a few leaves the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from platforms.results import ROOT, Result, saved

PAGE = ROOT / "docs" / "reference" / "platforms.md"

INTRODUCTION = """\
# Platforms

The servers, Pythons and libraries that this package was run on. The page is generated: `make platforms` sets
each of them up under `.cache`, runs the tests that depend on it, and writes the page. A choice, such as
`make platforms PLATFORMS="mysql-9 redis-8"`, leaves the rows of the others as they are. The version is the
exact one of that run. A skipped test does not apply to the platform, or needs a program that was not there.

- *The store*: all tests in `tests/store` that need a database server, on this one.
- *Real workers*: tests with workers on this broker. They play the [ways to die](ways_to_die.md) of the gate,
  and try capture, poison, messages that are not tasks, ingest, redrive, parked retries, and the messages of
  killed workers.
- *Unit tests*: those that need no server, and those of the store on SQLite. With the oldest libraries, those
  of the tab in Flower are left out: they use options that Flower has since 2.1. Other tests run it in 2.0.1.
- *A Django project*: its check, its commands, a worker, and a task of Django's own framework.
- *Flower's own tests*: without our tab and with it.

A Python has the oldest libraries that the package allows (`lowest`), the newest ones, or some between them.
If the machine does not have a Python, Debian's sid has it. Python 3.10 has reached its end of life. It is
supported until this package ends its support of Celery 5.6, the last Celery that runs on it.
"""

#: The heading of each kind, in the order of the page.
_HEADINGS = {"server": "Servers", "python": "Pythons and libraries"}

_COLUMNS = ("platform", "version", "what was run", "passed", "failed", "skipped", "day")

#: The kind, the name and the suite of a row.
_Key = tuple[str, str, str]


def page(before: str, results: Iterable[Result]) -> str:
    """The text of the page.

    :param before: its text until now.
    """
    rows = {**_rows(before), **{_key(result): _row(_cells(result)) for result in results}}
    tables = (_table(kind, heading, rows) for kind, heading in _HEADINGS.items())
    return "\n".join([INTRODUCTION, *filter(None, tables)])


def _key(result: Result) -> _Key:
    return result.kind, result.name, result.what


def _cells(result: Result) -> list[str]:
    return [
        f"`{result.name}`", result.version, result.what, f"{result.passed:,}", str(result.failed),
        str(result.skipped), result.date,
    ]  # fmt: skip


def _table(kind: str, heading: str, rows: Mapping[_Key, str]) -> str:
    found = [row for key, row in sorted(rows.items(), key=_order) if key[0] == kind]
    if not found:
        return ""
    head = [_row(_COLUMNS), _row(["---"] * len(_COLUMNS))]
    return "\n".join([f"## {heading}\n", *head, *found]) + "\n"


def _order(item: tuple[_Key, str]) -> list[object]:
    """By name; 3.9 before 3.10."""
    parts = re.split(r"(\d+)", " ".join(item[0]))
    return [int(part) if part.isdigit() else part for part in parts]


def _rows(text: str) -> dict[_Key, str]:
    """The rows of the tables in ``text``."""
    kinds = {heading: kind for kind, heading in _HEADINGS.items()}
    kind, found = "", {}
    for line in text.splitlines():
        if line.startswith("## "):
            kind = kinds[line.removeprefix("## ")]
        elif line.startswith("| `"):
            name, _, what, *_ = line.strip("| ").split(" | ")
            found[kind, name.strip("`"), what] = line
    return found


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), saved()), encoding="utf-8")
