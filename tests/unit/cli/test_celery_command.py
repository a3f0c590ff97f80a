"""The commands as Celery's own program finds and runs them, in processes of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.factories import letter

#: Each starts Celery several times: too long for ``make unit``.
pytestmark = pytest.mark.slow


#: The module of an app whose store is the one of the fixture ``app``.
SHOP = """
from celery import Celery
app = Celery('shop', broker='memory://')
app.conf.dlq_store_url = 'sqlite:///letters.sqlite3'

@app.task(name='shop.charge')
def charge(): ...
"""


def celery_dlq(*args, cwd, app=None):
    """A run of the real command, without an app unless one is named."""
    named = ["-A", app] if app else []
    return subprocess.run(
        [sys.executable, "-m", "celery", *named, "dlq", *args],
        cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.nightly
def test_celery_finds_the_commands(tmp_path):
    assert "redrive" in celery_dlq("--help", cwd=tmp_path).stdout


def completed(words, cwd):
    """The lines that the real program prints for the shell."""
    program = str(Path(sys.executable).with_name("celery"))
    asked = {
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        "_CELERY_COMPLETE": "bash_complete",
    }
    found = subprocess.run(
        [program], cwd=cwd, env={**os.environ, **asked}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stderr == ""
    return found.stdout.split()


def test_a_shell_completes_commands(tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    assert "plain,groups" in completed("celery -A shop dlq gr", tmp_path)


def test_a_command_without_an_app_is_refused(tmp_path, empty_store, monkeypatch):
    found = celery_dlq("list", cwd=tmp_path)
    assert found.returncode == 2
    assert "No app is given; write: celery -A <app> dlq" in found.stderr
    assert list(tmp_path.iterdir()) == []
    store = shutil.copy(empty_store, tmp_path / "letters.sqlite3")
    monkeypatch.setenv("CELERY_DLQ_STORE_URL", f"sqlite:///{store}")
    assert celery_dlq("list", cwd=tmp_path).stdout == "No dead letters match.\n"


def test_a_projects_own_default_app_is_accepted(tmp_path, empty_store):
    """As Celery's Django fixup leaves it: the project's app is the default one, its keys prefixed."""
    (tmp_path / "mysite.py").write_text(
        "from celery import Celery\n"
        "class Settings:\n"
        "    CELERY_BROKER_URL = 'memory://'\n"
        "app = Celery('mysite')\n"
        "app.config_from_object(Settings(), namespace='CELERY')\n"
        "app.set_default()\n"
    )
    shutil.copy(empty_store, tmp_path / "celery_dlq.sqlite3")
    found = celery_dlq("list", cwd=tmp_path, app="mysite")
    assert (found.returncode, found.stdout) == (0, "No dead letters match.\n"), found.stderr


def test_a_closed_pipe_prints_no_traceback(tmp_path, store):
    (tmp_path / "shop.py").write_text(SHOP)
    # Many times what a pipe holds.
    store.letters.save([letter(f"{n:08}", message="m" * 200) for n in range(1_000)])
    command = f"{sys.executable} -m celery -A shop dlq list --limit 1000 --format jsonl"
    found = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -n 1"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert len(found.stdout.splitlines()) == 1
    assert found.stderr == ""
    assert found.returncode == 0
