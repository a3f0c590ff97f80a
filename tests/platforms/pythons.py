"""Pythons with libraries: the oldest that `pyproject.toml` allows, the newest, and some between them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from platforms.debian import Suite
from platforms.pytest_run import NotRun, run_tests
from platforms.results import CACHE, ROOT, Result
from uv import find_uv_bin

#: What uv installs first. What the tests need comes after it, and leaves these versions as they are.
_LIBRARIES: Mapping[str, tuple[str, ...]] = {
    # No extra for users has Django, and each kombu names the versions of redis-py that it works with.
    "lowest": (
        "--resolution", "lowest-direct", "Django>=4.2", "redis>=5", "-e",
        ".[postgres,mysql,redis,flower,prometheus,archive,parquet,sentry]",
    ),
    "between": (
        "celery==5.6.*", "kombu==5.6.*", "sqlalchemy==2.0.*", "flower==2.1.*", "django==5.*",
    ),
    "newest": (),
}  # fmt: skip

#: The libraries whose versions a row of the page has.
_NAMED = {
    "celery": "Celery", "kombu": "kombu", "redis": "redis-py", "sqlalchemy": "SQLAlchemy",
    "flower": "Flower", "django": "Django",
}  # fmt: skip

#: These tests use options that Flower has since 2.1. `tests/integration/screens/test_flower_versions.py` runs
#: the tab in Flower 2.0.1.
_NEED_NEW_FLOWER = "--ignore=tests/unit/flower"

#: The words of a row to the arguments of pytest.
TESTS: Mapping[str, tuple[str, ...]] = {
    "unit tests": (
        "tests/unit", "tests/store", "-m", "not service and not slow", "--hypothesis-profile", "quick",
    ),
    "a Django project": ("tests/unit/test_django.py",),
    "Flower's own tests": ("tests/flower_own",),
    "real workers": ("tests/integration/test_matrix_on_redis.py",),
}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A Python with a choice of libraries."""

    #: Such as ``3.10``.
    python: str
    #: ``lowest``, ``between`` or ``newest``.
    libraries: str

    @property
    def name(self) -> str:
        return f"python-{self.python}-{self.libraries}"


#: Newer Pythons have no wheels of the oldest libraries.
TARGETS = (
    *(Target(python, "lowest") for python in ("3.10", "3.11")),
    Target("3.11", "between"),
    *(Target(python, "newest") for python in ("3.10", "3.11", "3.12", "3.13", "3.14")),
)


def run_on(target: Target) -> Iterator[Result]:
    """Make an environment, and run tests in it.

    :raises SuiteError: this Python cannot be had.
    :raises NotRun: the libraries cannot be installed, or the tests do not run.
    """
    environment = Environment.of(target)
    environment.install(target.libraries)
    version = environment.version()
    # A part of them belongs to `make nightly`.
    everything = {"tests/flower_own": {"CELERY_DLQ_TEST_ALL": "1"}}
    for what, chosen in TESTS.items():
        is_old = target.libraries == "lowest" and what == "unit tests"
        choice = (*chosen, _NEED_NEW_FLOWER) if is_old else chosen
        variables = everything.get(choice[0], {})
        yield run_tests(
            "python", target.name, version, what, choice, variables, environment.own_python
        )


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and the Python that makes it."""

    directory: Path
    python: str
    #: The suite of Debian that has the Python, if this machine does not.
    suite: Suite | None = None

    @classmethod
    def of(cls, target: Target) -> Environment:
        """The environment of ``target``, which is not made yet.

        :raises SuiteError: this Python cannot be had.
        """
        directory = CACHE / target.name
        if python := find_python(target.python):
            return cls(directory, python)
        suite, name = Suite("sid"), f"python{target.python}"
        suite.install(name, f"{name}-venv")
        return cls(directory, f"/usr/bin/{name}", suite)

    @property
    def own_python(self) -> list[str]:
        """The beginning of a command that runs its Python in the checkout."""
        return self._inside(str(self.directory / "bin" / "python"))

    def install(self, libraries: str, *tests: str) -> None:
        """Make it from the start, with the package, these libraries and those of its tests.

        :param tests: arguments of ``uv pip install``, instead of all that tests need.
        :raises NotRun: they cannot be installed.
        """
        CACHE.mkdir(parents=True, exist_ok=True)
        # A suite sees the checkout only.
        uv = shutil.copy(find_uv_bin(), CACHE) if self.suite else find_uv_bin()
        self._call(
            self._inside(
                uv, "venv", "--clear", "--seed", "--python", self.python, str(self.directory)
            )
        )
        pip = [uv, "pip", "install", "--python", str(self.directory)]
        for chosen in (_LIBRARIES[libraries], tests or ("-e", ".[test,test-aws]")):
            if chosen:
                self._call(self._inside(*pip, *chosen))

    def version(self) -> str:
        """Its Python and libraries, for the page."""
        code = (
            "import json, platform; from importlib.metadata import version;"
            f"print(json.dumps([platform.python_version(), *map(version, {list(_NAMED)})]))"
        )
        python, *versions = json.loads(self._call([*self.own_python, "-c", code]))
        libraries = zip(_NAMED.values(), versions, strict=True)
        return f"{python}; {', '.join(' '.join(pair) for pair in libraries)}"

    def _inside(self, *command: str) -> list[str]:
        if self.suite is None:
            return [*command]
        # Its /tmp is in memory, of which `dlq doctor` warns.
        temporary = CACHE / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        return self.suite.inside(["env", f"--chdir={ROOT}", f"TMPDIR={temporary}", *command], ROOT)

    def _call(self, command: Sequence[str]) -> str:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise NotRun(f"{' '.join(command[-6:])} failed:\n{done.stderr[-2000:]}")
        return done.stdout


def find_python(version: str) -> str | None:
    """A Python of this version on this machine: pyenv's, or one in PATH."""
    versions = Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")
    for path in [*map(str, versions), shutil.which(f"python{version}")]:
        # A shim of pyenv fails if no version is chosen. uv does not look further than the first shim.
        if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return path
    return None
