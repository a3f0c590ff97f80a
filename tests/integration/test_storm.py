"""A storm of failures: the process that then saves them, and what becomes of them when it is killed."""

import os
import signal
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

import pytest
from project import wait_for

from celery_dlq import Filter

pytestmark = [pytest.mark.slow, pytest.mark.service]

LETTERS = 1_500

#: A hook that is told in the worker, whoever has saved the letter.
NOTES = """
def note(letter):
    with open("told", "a") as told:
        print(letter.task_id, file=told)
"""


def scribes(worker):
    """The processes that save for ``worker``."""
    own = (Path(f"/proc/{worker.pid}/task/{thread}/children") for thread in threads(worker))
    return [int(pid) for path in own for pid in path.read_text().split() if is_scribe(pid)]


def threads(worker):
    return os.listdir(f"/proc/{worker.pid}/task")


def is_scribe(pid):
    with suppress(OSError):
        return b"celery_dlq.worker.recording.scribe" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def told(project):
    notes = project.directory / "told"
    return notes.read_text().split() if notes.exists() else []


def test_a_storm_is_saved_beside_the_worker_and_survives_the_end_of_that(project):
    (project.directory / "notes.py").write_text(NOTES)
    project.settings = {"dlq_on_dead_letter": ["notes.note"]}
    ids = {project.send("terminal", number) for number in range(LETTERS)}
    with project.worker("-c", "2") as worker:
        [first] = wait_for("a process that saves", lambda: scribes(worker))
        wait_for("letters", lambda: project.dlq.store.count(Filter()) > LETTERS / 10)
        os.kill(first, signal.SIGKILL)
        wait_for("all letters", lambda: project.dlq.store.count(Filter()) == LETTERS)
        wait_for("all hooks", lambda: ids <= set(told(project)))
        left = scribes(worker)
    assert sum(project.dlq.store.stats(datetime.now(timezone.utc)).arrivals) == LETTERS
    assert not any(is_scribe(pid) for pid in left)
