"""A pytest plugin that writes how each test ended, as JSON, to the file named in the environment."""

import json
import os
import sys
import types
from pathlib import Path

# Celery 5.5 imports by its old name what pytest has built in since version 9.
sys.modules.setdefault("pytest_subtests", types.ModuleType("pytest_subtests"))

_outcomes: dict[str, str] = {}


def pytest_runtest_logreport(report):
    """Called for each phase, and each subtest, of each test: the first that did not pass counts."""
    outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
    if _outcomes.get(report.nodeid, "passed") == "passed":
        _outcomes[report.nodeid] = outcome


def pytest_sessionfinish():
    """Write them."""
    Path(os.environ["REPORTED_OUTCOMES"]).write_text(json.dumps(_outcomes))
