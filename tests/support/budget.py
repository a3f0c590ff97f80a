"""The time that the gate takes, and the kinds of tests that take it: the last line of ``make test``.

``make`` says in ``CELERY_DLQ_GATE_BEGAN`` when it began, before it installed anything.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import PurePosixPath

import pytest

#: Minutes that ``make test`` may take on two quiet cores.
BUDGET_MIN = 15
#: Kinds that the line names.
_NAMED = 6

#: Seconds of one process by kind of test: set-up, call and teardown.
_spent: Counter[str] = Counter()


def kind_of(nodeid: str) -> str:
    """The kind of a test: its ring, and in the two largest rings its room."""
    path = PurePosixPath(nodeid.partition("::")[0])
    folders = path.parts[1:-1]
    depth = 2 if folders[:1] in (("unit",), ("integration",)) else 1
    return "/".join(folders[:depth]) or path.stem


def line_of(spent: Counter[str], minutes: float) -> str:
    """The line for people."""
    slowest = ", ".join(f"{kind} {s / 60:.1f}" for kind, s in spent.most_common(_NAMED))
    over = f", which is over its budget of {BUDGET_MIN}" if minutes > BUDGET_MIN else ""
    return f"gate {minutes:.1f} min{over}; slowest kinds, in minutes of one process: {slowest}"


@pytest.hookimpl
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _spent[kind_of(report.nodeid)] += report.duration


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    began = os.environ.get("CELERY_DLQ_GATE_BEGAN")
    if began and not hasattr(config, "workerinput"):
        print(line_of(_spent, (time.time() - float(began)) / 60))
