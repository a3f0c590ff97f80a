"""The kill test in its short form: each harm once or twice. ``make chaos`` runs the long one."""

import os
import random
import subprocess
import sys

import pytest
from chaos.pairs import NIGHTLY, TESTED
from chaos.run import ALL_WELL, NOT_RUN
from chaos.workers import TESTS

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(420)]

SECONDS, TASKS = "20", "600"


@pytest.mark.parametrize(
    "pair", [*TESTED, *(pytest.param(pair, marks=pytest.mark.nightly) for pair in NIGHTLY)]
)
def test_nothing_is_lost_whatever_is_killed(pair):
    # The generator has the seed of the whole test run when a test begins.
    seed = str(random.randrange(1_000_000))
    command = [
        sys.executable, "-m", "chaos.run", "--pair", pair, "--seconds", SECONDS, "--tasks", TASKS,
        "--seed", seed,
    ]  # fmt: skip
    run = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(TESTS)}, capture_output=True, text=True
    )
    if run.returncode == NOT_RUN and os.environ.get("CI") != "true":
        pytest.skip(run.stderr.strip())
    assert run.returncode == ALL_WELL, run.stdout + run.stderr
