"""A pytest plugin that writes how each test ended, as JSON, to the file named in the environment."""

import json
import os
from pathlib import Path

_outcomes: dict[str, str] = {}


def pytest_runtest_logreport(report):
    """Called for each phase, and each subtest, of each test: the first that did not pass counts."""
    outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
    if _outcomes.get(report.nodeid, "passed") == "passed":
        _outcomes[report.nodeid] = outcome


def pytest_sessionfinish():
    Path(os.environ["CELERY_OWN_OUTCOMES"]).write_text(json.dumps(_outcomes))
