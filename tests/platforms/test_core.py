"""A core of the unit tests on the oldest Python with the oldest libraries, and on the newest Python with
the newest ones, of those that the machine has. `make platforms` runs all of them, and on all Pythons."""

import os
import subprocess

import pytest
from platforms.pythons import Environment, Target, find_python
from platforms.results import ROOT

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

#: What the tests of the core import, without the large libraries that others need.
TOOLS = (
    "-e", ".[postgres,mysql,redis,archive]", "pytest", "pytest-timeout", "hypothesis", "time-machine",
    "botocore", "httpx", "msgpack", "pydantic", "PyYAML", "requests",
)  # fmt: skip

CORE = [
    f"tests/unit/{room}"
    for room in ("classify", "model", "redrive", "retry", "spool", "test_redact.py", "view")
]


@pytest.mark.parametrize(
    "target", [Target("3.10", "lowest"), Target("3.13", "newest")], ids=lambda target: target.name
)
def test_the_core_of_the_unit_tests(target, tmp_path):
    python = find_python(target.python)
    if python is None:
        pytest.skip(f"Python {target.python} is not installed")
    environment = Environment(tmp_path / "venv", python)
    environment.install(target.libraries, *TOOLS)
    command = [*environment.own_python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CORE]
    done = subprocess.run(
        [*command, "-m", "not service and not slow", "--hypothesis-profile", "quick"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
