"""Each extra alone, from the wheel, in an environment of its own: what it is for works, and everything that
needs another extra names that one."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.installed import APP, Installed, build_wheel, metadata, outside
from uv import find_uv_bin

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(600)]

#: Extras for those who work on the package.
FOR_TESTS = {"release", "test", "test-aws", "libraries", "docs", "bench", "lint"}

#: No server listens there.
NOWHERE = "127.0.0.1:1"


@dataclass(frozen=True)
class Use:
    """A command that needs an extra."""

    words: tuple[str, ...]
    #: What it prints if the extra is missing.
    without: str
    #: What it prints if the extra is installed; None if it then ends without an error.
    with_it: str | None = None
    #: Its variables, such as ``SHOP_BROKER=redis://``.
    variables: tuple[str, ...] = ()


def dlq(*words: str) -> tuple[str, ...]:
    return ("celery", "-A", "app", "dlq", *words)


def install(extra: str) -> str:
    return f"pip install 'celery-dlq[{extra}]'"


_STORE = f"CELERY_DLQ_STORE_URL={{}}://user@{NOWHERE}/shop"
_METRICS = "import app, celery_dlq; celery_dlq.DeadLetterQueue(app.app).register_metrics()"
_ARCHIVE = "SHOP_ARCHIVE=file://{place}/archive"

_TO_PARQUET = dlq("archive", "export", "--parquet", "letters.parquet")

USES = {
    "postgres": Use(dlq("list"), install("postgres"), "refused", (_STORE.format("postgresql"),)),
    "mysql": Use(dlq("list"), install("mysql"), "refused", (_STORE.format("mysql"),)),
    "redis": Use(dlq("doctor"), install("redis"), "does not answer", (f"SHOP_BROKER=redis://{NOWHERE}",)),
    "flower": Use(("celery", "-A", "app", "flower", "--help"), "No such command 'flower'"),
    "prometheus": Use(("python", "-c", _METRICS), install("prometheus")),
    "archive": Use(dlq("archive", "run", "--all"), install("archive"), variables=(_ARCHIVE,)),
    # It names the extra archive first.
    "parquet": Use(_TO_PARQUET, "pip install 'celery-dlq[", variables=(_ARCHIVE,)),
    "sentry": Use(("python", "-c", "from celery_dlq.hooks import Sentry; Sentry()"), install("sentry")),
}  # fmt: skip

#: Extras that bring another one along.
WITH_IT = {"parquet": {"archive"}, "flower": {"prometheus"}}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_every_extra_for_users_is_tried(wheel: Path) -> None:
    extras = re.findall(r"^Provides-Extra: (.+)$", metadata(wheel), re.MULTILINE)
    assert {*extras} - FOR_TESTS == {*USES}


@pytest.mark.parametrize("extra", USES)
def test_an_extra_works_alone(extra: str, wheel: Path, tmp_path: Path) -> None:
    environment = _environment(tmp_path / "venv", wheel, extra)
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "archive").mkdir()
    for words in (("db", "upgrade"), ("list",), ("doctor",)):
        ended = environment.run(*dlq(*words), cwd=tmp_path)
        assert (ended.returncode, ended.stderr) == (0, ""), words
    there = {extra} | WITH_IT.get(extra, set())
    for name, use in USES.items():
        variables = dict(one.format(place=tmp_path).split("=", 1) for one in use.variables)
        ended = environment.run(*use.words, cwd=tmp_path, **variables)
        said = ended.stdout + ended.stderr
        assert (use.without in said) is (name not in there), (name, said)
        if name in there:
            assert use.with_it in said if use.with_it else ended.returncode == 0, (name, said)


def _environment(place: Path, wheel: Path, extra: str) -> Installed:
    uv = find_uv_bin()
    for words in (
        ("venv", "--python", sys.executable, place),
        ("pip", "install", "--python", place, f"{wheel}[{extra}]"),
    ):
        subprocess.run([uv, "--quiet", *words], env=outside(), check=True)
    return Installed(place / "bin", wheel)
