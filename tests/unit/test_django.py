"""A Django project: its check, its producer, its worker and its commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Each starts processes with Django and Celery.
pytestmark = pytest.mark.slow

pytest.importorskip("django")

ROOT = Path(__file__).parents[2]

SETTINGS = """
SECRET_KEY = "x"
USE_TZ = True
INSTALLED_APPS = ["celery_dlq"]
CELERY_BROKER_URL = "memory://"
CELERY_DLQ_STORE_URL = "sqlite:///letters.sqlite3"
"""

CELERY = """
import os
from celery import Celery
from celery_dlq import DLQTask

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")
app = Celery("mysite")
app.config_from_object("django.conf:settings", namespace="CELERY")

@app.task(base=DLQTask)
def charge(order): ...
"""


class Site:
    """A project called ``mysite`` in a directory of its own."""

    def __init__(self, directory):
        self.directory = directory
        (directory / "mysite").mkdir()
        self.write("settings", SETTINGS)
        self.write("celery", CELERY)
        self.write("__init__", "from .celery import app as celery_app")

    def write(self, module, text):
        (self.directory / "mysite" / f"{module}.py").write_text(text)

    def set(self, line):
        self.write("settings", f"{SETTINGS}{line}\n")

    def run(self, *words):
        # A relative URL in the environment of the tests would be another store.
        environ = {k: v for k, v in os.environ.items() if not k.startswith("CELERY_DLQ_")}
        environ |= {
            "PYTHONPATH": f"{self.directory}:{ROOT}",
            "DJANGO_SETTINGS_MODULE": "mysite.settings",
        }
        return subprocess.run(
            [sys.executable, *words], cwd=self.directory, env=environ,
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip

    def check(self):
        return self.run("-m", "django", "check")

    def celery(self, *words):
        return self.run("-m", "celery", "-A", "mysite", *words)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


WRONG = [
    (
        "CELERY_DLQ_MAX_ATEMPTS = 3",
        "Unknown setting 'CELERY_DLQ_MAX_ATEMPTS': did you mean 'CELERY_DLQ_MAX_ATTEMPTS'?",
    ),
    ("CELERY_DLQ_MAX_ATTEMPTS = 0", "dlq_max_attempts = 0 is not a whole number from 1 to 10000"),
]


@pytest.mark.parametrize(("line", "said"), WRONG, ids=["name", "value"])
def test_a_wrong_setting_fails_the_check(site, line, said):
    site.set(line)
    done = site.check()
    assert done.returncode == 1
    assert f"Celery app mysite: (celery_dlq.E001) {said}" in done.stderr


def test_right_settings_pass_the_check(site):
    site.set("CELERY_DLQ_MAX_ATTEMPTS = 3")
    done = site.check()
    assert (done.returncode, done.stderr) == (0, "")
    assert "no issues" in done.stdout


def test_a_project_without_a_celery_app_is_warned(site):
    site.write("__init__", "")
    done = site.check()
    assert done.returncode == 0
    assert "(celery_dlq.W001) No Celery app is loaded" in done.stderr


def test_a_web_process_with_a_wrong_setting_sends_and_says_so(site):
    line, said = WRONG[0]
    site.set(line)
    done = site.run(
        "-c", "import mysite; from mysite.celery import charge; print(len(charge.delay(1).id))"
    )
    assert (done.returncode, done.stdout) == (0, "36\n")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words", [("worker", "-P", "solo"), ("dlq", "list"), ("dlq", "doctor")], ids=" ".join
)
def test_a_worker_or_command_with_a_wrong_setting_does_not_start(site, words):
    line, said = WRONG[0]
    site.set(line)
    done = site.celery(*words)
    assert done.returncode not in (0, None)
    # The doctor wraps its lines.
    assert said in " ".join((done.stdout + done.stderr).split())
    assert "Messages are sent all the same" not in done.stderr, "it is no producer"


TASKS = """
from django.tasks import task

@task
def ship(order):
    return int(order)
"""

#: Sends one message through Django's tasks, and prints the letter of it.
ENQUEUE = """
import time

import django

django.setup()

from celery.contrib.testing.worker import start_worker
from celery_dlq import DeadLetterQueue
from mysite.celery import app
from mysite.tasks import ship

with start_worker(app, perform_ping_check=False):
    sent, store = ship.enqueue("one"), DeadLetterQueue.of(app).store
    deadline = time.monotonic() + 60
    while (letter := store.letters.get(sent.id)) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    print(letter.task, letter.reason.value, letter.rule)
"""


def test_a_task_of_django_becomes_a_letter(site):
    """With the backend of PyPI's django-tasks-celery, which gives tasks the app's own base."""
    pytest.importorskip("django.tasks", reason="of Django 6")
    pytest.importorskip("django_tasks_celery", reason="needs Python 3.12")
    site.write("celery", CELERY.replace('Celery("mysite")', 'Celery("mysite", task_cls=DLQTask)'))
    site.set('TASKS = {"default": {"BACKEND": "django_tasks_celery.CeleryBackend"}}')
    site.write("tasks", TASKS)
    done = site.run("-c", ENQUEUE)
    assert (done.returncode, done.stdout) == (0, "mysite.tasks.ship terminal python.error\n"), (
        done.stderr
    )
