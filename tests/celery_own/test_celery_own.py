"""Celery's own tests give the same results with DLQTask, but for the differences on purpose."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from celery_own import run

PLAIN = {"same": "passed", "other": "passed", "third": "skipped"}


def test_a_difference_must_be_expected():
    ours = {**PLAIN, "other": "failed"}
    assert run.problems(PLAIN, ours, {"on purpose": ("other",)}) == []
    [wrong] = run.problems(PLAIN, ours, {})
    assert wrong == "other: passed with Task, failed with DLQTask"


@pytest.fixture(autouse=True)
def _few_tests_are_healthy(monkeypatch):
    monkeypatch.setattr(run, "_HEALTHY", 0.5)


def test_a_test_that_did_not_run_differs():
    [wrong] = run.problems(PLAIN, {"same": "passed", "third": "skipped"}, {})
    assert wrong.startswith("other: passed with Task, None")


def test_an_expected_difference_that_is_gone_is_a_problem():
    [wrong] = run.problems(PLAIN, PLAIN, {"on purpose": ("other",)})
    assert wrong == "other: ends the same, but is expected to differ: on purpose"


def test_what_a_release_does_not_test_is_not_expected_of_it():
    assert run.problems(PLAIN, PLAIN, {"on purpose": ("new in the next release",)}) == []


def test_a_comparison_of_failures_proves_nothing():
    failed = dict.fromkeys(PLAIN, "failed")
    [wrong] = run.problems(failed, failed, {})
    assert "is a library missing?" in wrong


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_celerys_own_tests():
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-m", "celery_own.run"], env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
