"""Runs Celery's own tests with its plain Task and with DLQTask as the default task class.

Run ``python -m celery_own.run`` with this file's grandparent directory as PYTHONPATH. It ends with 1
when a test ends otherwise with DLQTask and :mod:`celery_own.expected_differences` does not say why,
and when it says so of a test that ends the same.
"""

from __future__ import annotations

import sys
from importlib.metadata import version

from celery_own.expected_differences import EXPECTED_DIFFERENCES
from support.workers.host_suites import run_both, unpacked

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


def main() -> int:
    """Compare, print, and return the exit code."""
    release = version("celery")
    source = unpacked("celery", release, ("t/", "pyproject.toml"))
    compared = run_both(f"Celery {release}", source, TESTS, "celery_own.dlq_by_default")
    return compared.report(EXPECTED_DIFFERENCES)


if __name__ == "__main__":
    sys.exit(main())
