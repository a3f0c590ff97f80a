"""The wheel, installed in an environment of its own, and a project that uses it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

APP = """
from os import environ
from celery import Celery
from celery_dlq import DLQTask

app = Celery("shop", broker=environ.get("SHOP_BROKER", "memory://"))
app.conf.dlq_store_url = "sqlite:///store.sqlite3"
app.conf.dlq_archive_url = environ.get("SHOP_ARCHIVE")

@app.task(base=DLQTask, name="shop.charge")
def charge(order_id):
    raise KeyError(order_id)
"""


@dataclass(frozen=True)
class Installed:
    """An environment in which the wheel is installed."""

    bin: Path
    wheel: Path

    def run(self, *command: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment as in a fresh shell of a user's."""
        return subprocess.run(
            [self.bin / command[0], *command[1:]],
            cwd=cwd, env={"PATH": os.defpath, "HOME": str(cwd), "COLUMNS": "120", **variables},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def python(self, code: str, cwd: Path) -> str:
        """What ``code`` prints, run as a script of its own."""
        ended = self.run("python", "-W", "error", "-c", code, cwd=cwd)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()


def outside() -> dict[str, str]:
    """The environment of these tests, without ways back into the checkout."""
    return {key: os.environ[key] for key in os.environ if key not in ("PYTHONPATH", "MYPYPATH")}


def build_wheel(home: Path) -> Path:
    """The wheel of the checkout, in ``home``."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--wheel-dir", home, ROOT]
    subprocess.run([*pip, *build], env=outside(), check=True)
    [wheel] = home.glob("celery_dlq-*.whl")
    return wheel


def metadata(wheel: Path, file: str = "METADATA") -> str:
    """A file of the wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(f".dist-info/{file}")]
        return archive.read(name).decode()
