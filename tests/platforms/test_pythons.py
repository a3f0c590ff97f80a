import sys

import pytest
from platforms.pytest_run import NotRun
from platforms.pythons import TARGETS, Environment, find_python
from platforms.results import CACHE, ROOT
from platforms.table import PLATFORMS

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_each_target_is_a_platform(target):
    assert target.name in PLATFORMS


def test_a_python_of_this_machine_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_python("3.99") is None
    for folder, status in ((tmp_path, 127), (tmp_path / ".pyenv/versions/3.99.1/bin", 0)):
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / "python3.99"
        program.write_text(f"#!/bin/sh\nexit {status}\n")
        program.chmod(0o755)
        assert find_python("3.99") == (None if status else str(program))


def test_a_python_of_debian_runs_in_the_checkout(tmp_path):
    class Suite:
        def inside(self, command, directory):
            return ["inside", str(directory), *command]

    environment = Environment(tmp_path, "/usr/bin/python3.14", Suite())
    assert environment.own_python == [
        "inside", str(ROOT), "env", f"--chdir={ROOT}", f"TMPDIR={CACHE}/tmp", f"{tmp_path}/bin/python",
    ]  # fmt: skip


def test_a_library_that_cannot_be_installed_is_named(tmp_path):
    environment = Environment(tmp_path / "venv", sys.executable)
    with pytest.raises(NotRun, match="celery-dlq-is-not-there"):
        environment.install("newest", "--offline", "celery-dlq-is-not-there")
