"""Flower's own tests give the same results with the tab."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_flowers_own_tests():
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-m", "flower_own.run"], env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
