"""Writes ``docs/reference/ways_to_die.md`` from the results of runs of the matrix.

``python -m matrix.page RESULTS...``: each a directory of one Celery version's results, as
``CELERY_DLQ_MATRIX_RESULTS`` of that run named it.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matrix.mode import BROKERS, POOLS, End, Mode, Place, minor
from matrix.table import CHAPTERS, MODES

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "ways_to_die.md"

_NAMES = {"redis": "Redis", "classic": "RabbitMQ classic", "quorum": "RabbitMQ quorum"}

_NOTHING = "-"

SYMBOLS = {Place.DONE: "✓", Place.DROPPED: "∅", Place.LOST: "✗", Place.RAISED: "!"}

INTRODUCTION = """\
# Ways to die

Every way in which a message can end, and where it ends. This page is generated: `make matrix` plays
each row with real workers, on each broker and pool, with each version of Celery, and writes the page. After
each run the queue is empty, no worker holds a message, and there are no letters except those in the table.

| symbol | meaning |
| --- | --- |
| ✓ | done: the task ran to its end |
| ✉ *reason* | one open letter, with that [reason](../state_machine.md#reasons) |
| ∅ | dropped as intended: expired, revoked, ignored |
| ! | there is no message: the caller or author of the task gets the error |
| ✗ | lost; [operations](../operations.md#what-can-still-be-lost) says which setting closes it |
| - | does not exist on this pool |
| ? | not played yet |

A cell speaks for Redis, RabbitMQ and all versions of Celery below, or names the brokers on which it differs
and the versions with which it was played. [Amazon SQS](#on-amazon-sqs) has a part of its own.
"""

ON_SQS = """\
## On Amazon SQS

The rows were also played on a stand-in for Amazon SQS (moto). There are none for revoking, because SQS has no
remote control, and for broken connections, because each of its requests has a connection of its own.

{runs}
{others}
"""


@dataclass
class _Results:
    """What was seen: cells, and on which versions."""

    #: Mode, broker and pool to each run's version of Celery, and whether its end was the right one.
    cells: dict[tuple[str, str, str], list[tuple[str, bool]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    #: Versions of the libraries to how many cells were right, and how many there were.
    runs: dict[tuple[str, str, str], list[bool]] = field(default_factory=lambda: defaultdict(list))
    #: The same on Amazon SQS.
    runs_on_sqs: dict[tuple[str, str, str], list[bool]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, cell: Mapping[str, Any]) -> None:
        run = cell["celery"], cell["right"]
        self.cells[cell["mode"], cell["broker"], cell["pool"]].append(run)
        runs = self.runs_on_sqs if cell["broker"] == "sqs" else self.runs
        runs[cell["celery"], cell["kombu"], cell["billiard"]].append(cell["right"])


def read(directories: Iterable[Path]) -> _Results:
    results = _Results()
    for directory in directories:
        for path in sorted(directory.glob("*.jsonl")):
            for line in path.read_text().splitlines():
                results.add(json.loads(line))
    return results


def page(results: _Results) -> str:
    """The text of the page."""
    parts = [INTRODUCTION, _runs(results.runs)]
    for chapter, modes in CHAPTERS.items():
        parts.append(f"## {chapter}\n\n{_table(modes, results)}")
    parts.append(f"## Why not on every pool\n\n{_why_not()}")
    parts.append(ON_SQS.format(runs=_runs(results.runs_on_sqs), others=_others_on_sqs(results)))
    return "\n".join(parts)


def _others_on_sqs(results: _Results) -> str:
    """The cells of SQS that differ from those of Redis, or have come to another end than they must."""
    lines: list[str] = []
    for mode in MODES:
        ends = {pool: mode.end_on("sqs", pool) for pool in POOLS if mode.applies_to("sqs", pool)}
        wrong = any(not right for pool in ends for _, right in results.cells[mode.id, "sqs", pool])
        if wrong or any(end != mode.end_on("redis", pool) for pool, end in ends.items()):
            cells = (_shown_on_sqs(mode, pool, results) for pool in POOLS)
            lines.append(_row([mode.title, *cells]))
    if not lines:
        return "Each message ends as on Redis."
    head = [_row(["", *POOLS]), _row(["---"] * (len(POOLS) + 1))]
    return "\n".join(["Each message ends as on Redis, except these:", "", *head, *lines])


def _shown_on_sqs(mode: Mode, pool: str, results: _Results) -> str:
    if not mode.applies_to("sqs", pool):
        return _NOTHING
    symbol, cells = _symbol(mode.end_on("sqs", pool)), results.cells[mode.id, "sqs", pool]
    return symbol if all(right for _, right in cells) else f"not {symbol}"


def _runs(runs: Mapping[tuple[str, str, str], Sequence[bool]]) -> str:
    lines = [
        "| Celery | kombu | billiard | cells played | right |",
        "| --- | --- | --- | --- | --- |",
    ]
    for versions, rights in sorted(runs.items()):
        lines.append(f"| {' | '.join(versions)} | {len(rights)} | {sum(rights)} |")
    return "\n".join(lines) + "\n"


def _table(modes: Sequence[Mode], results: _Results) -> str:
    head = ["", "what celery_dlq does", "what plain Celery does", *POOLS]
    lines = [_row(head), _row(["---"] * len(head))]
    lines += [
        _row([mode.title, mode.ours, mode.plain, *(_cell(mode, pool, results) for pool in POOLS)])
        for mode in modes
    ]
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(mode: Mode, pool: str, results: _Results) -> str:
    by_broker = {broker: _on(mode, broker, pool, results) for broker in BROKERS}
    shown = {symbol for symbol in by_broker.values() if symbol != _NOTHING}
    if len(shown) <= 1:
        return shown.pop() if shown else _NOTHING
    return ", ".join(f"{_NAMES[broker]} {symbol}" for broker, symbol in by_broker.items())


def _on(mode: Mode, broker: str, pool: str, results: _Results) -> str:
    if not mode.applies_to(broker, pool):
        return _NOTHING
    by_symbol: dict[str, set[str]] = defaultdict(set)
    for celery, right in results.cells.get((mode.id, broker, pool), []):
        symbol = _symbol(mode.end_on(broker, pool, celery))
        by_symbol[symbol if right else f"not {symbol}"].add(celery)
    parts = (_with(versions, symbol, results) for symbol, versions in by_symbol.items())
    return ", ".join(parts) or "?"


def _with(versions: set[str], symbol: str, results: _Results) -> str:
    """``symbol``, and the ``versions`` of Celery unless these are all."""
    if versions == {celery for celery, _, _ in results.runs}:
        return symbol
    shown = [".".join(map(str, minor(celery))) for celery in sorted(versions, key=minor)]
    return f"{symbol} ({', '.join(shown)})"


def _symbol(end: End) -> str:
    return f"✉ {end.reason.value}" if end.reason else SYMBOLS[end.place]


def _why_not() -> str:
    return "".join(f"- {title}: {why}.\n" for title, why in _absences())


def _absences() -> Iterator[tuple[str, str]]:
    by_reason: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for mode in MODES:
        if mode.why_not:
            missing = tuple(pool for pool in POOLS if pool not in mode.pools)
            by_reason[mode.why_not, missing].append(mode.title)
    for (why, missing), titles in by_reason.items():
        yield f"{'; '.join(titles)} (not on {', '.join(missing)})", why


if __name__ == "__main__":
    PAGE.write_text(page(read(map(Path, sys.argv[1:]))), encoding="utf-8")
