"""The environment of a public project, and its source without and with this package, under ``.cache``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from public_projects.table import Edit, Project
from uv import find_uv_bin

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

#: Everything that `make projects` sets up and writes.
CACHE = ROOT / ".cache" / "public_projects"

#: The Python for which all of the projects have wheels of what they require.
PYTHON = "3.11"

_TIME_LIMIT_S = 1800


class NotInstalled(Exception):
    """A project cannot be installed; the text names the next step."""


@dataclass(frozen=True)
class Environment:
    """A project's virtual environment, and the two trees of its source."""

    project: Project

    @property
    def directory(self) -> Path:
        return CACHE / f"{self.project.name}-{self.project.version}"

    @property
    def python(self) -> str:
        return str(self.directory / "venv" / "bin" / "python")

    def install(self) -> float:
        """Make what is not there yet, and return how many seconds that took when it was made.

        :raises NotInstalled: the project, or what it requires, cannot be had.
        """
        took = self.directory / "seconds"
        if not took.exists():
            began = time.monotonic()
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory.mkdir(parents=True)
            self._fetch_source()
            self._make_environment()
            took.write_text(f"{time.monotonic() - began:.0f}")
        self._adopt()
        return float(took.read_text())

    def own_tests(self, tree: str) -> dict[str, str]:
        """How each of the project's own tests ends in ``plain`` or ``adopted``.

        :raises NotInstalled: pytest did not run them.
        """
        outcomes = self.directory / f"{tree}.json"
        # Some have no settings for pytest, which would find ours further up.
        own = ["-c", os.devnull, "--rootdir", str(self.directory / tree)]
        options = [*own, "-q", "-p", "no:cacheprovider", "-p", "support.workers.report_outcomes"]
        done = self._python(
            ["-m", "pytest", *options, *self.project.tests], tree, self.directory / tree,
            {**self.project.environ, "REPORTED_OUTCOMES": str(outcomes)},
        )  # fmt: skip
        if done.returncode not in (0, 1):
            raise NotInstalled(
                f"pytest ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}"
            )
        found: dict[str, str] = json.loads(outcomes.read_text())
        return found

    def play(self) -> dict[str, Any]:
        """What happened when its tasks failed in a worker."""
        directory = self.directory / "work"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        done = self._python(["-m", "play", self.project.app], "adopted", directory, {})
        if done.returncode:
            raise NotInstalled(f"its tasks were not played to the end:\n{done.stderr[-3000:]}")
        played: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return played

    def _python(
        self, arguments: Sequence[str], tree: str, directory: Path, environ: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        source = self.directory / tree
        paths = (source, HERE, HERE / "apps", ROOT / "tests")
        # What the tests of this package set is not meant for those of another one.
        kept = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
        return subprocess.run(
            [self.python, *arguments], cwd=directory, capture_output=True, text=True, timeout=_TIME_LIMIT_S,
            env={**kept, "PYTHONPATH": os.pathsep.join(map(str, paths)), **environ},
        )  # fmt: skip

    def _fetch_source(self) -> None:
        project = self.project
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            project.name,
        ]
        done = _run(*pip, "--dest", str(self.directory), f"{project.name}=={project.version}")
        # pip may end with an error after it has the file, if it does not understand the metadata.
        if not (found := list(self.directory.glob("*.tar.gz"))):
            raise NotInstalled(_not_from_pypi(project.name, done.stderr))
        with tarfile.open(found[0]) as archive:
            archive.extractall(self.directory, filter="data")
        (self.directory / found[0].name.removesuffix(".tar.gz")).rename(self.directory / "plain")
        found[0].unlink()

    def _make_environment(self) -> None:
        project, uv = self.project, find_uv_bin()
        overrides = self.directory / "overrides.txt"
        overrides.write_text("\n".join(project.overrides))
        made = _run(uv, "venv", "--quiet", "--python", PYTHON, str(self.directory / "venv"))
        done = (
            made
            if made.returncode
            else _run(
                *(
                    uv,
                    "pip",
                    "install",
                    "--quiet",
                    "--python",
                    self.python,
                    "--overrides",
                    str(overrides),
                ),
                *("-e", str(ROOT), f"{project.name}=={project.version}", *project.also),
            )
        )
        if done.returncode:
            raise NotInstalled(_not_from_pypi(project.name, done.stderr))

    def _adopt(self) -> None:
        adopted = self.directory / "adopted"
        shutil.rmtree(adopted, ignore_errors=True)
        shutil.copytree(self.directory / "plain", adopted)
        for edit in self.project.edits:
            apply(edit, adopted)


def apply(edit: Edit, source: Path) -> None:
    """Make a change in the tree ``source``.

    :raises NotInstalled: the file does not have the text exactly once.
    """
    path = source / edit.path
    text = path.read_text(encoding="utf-8")
    if (count := text.count(edit.old)) != 1:
        raise NotInstalled(
            f"{edit.path} has {edit.old!r} {count} times, not once; change it in table.py."
        )
    path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def _not_from_pypi(name: str, said: str) -> str:
    advice = "Check that this machine reaches PyPI, then run it again."
    return f"{name} cannot be installed. {advice}\n{said[-2000:]}"
