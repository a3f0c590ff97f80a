"""A storm of failures: a saver process saves the letters, and none is lost when it is killed."""

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

#: A hook that is called in the worker, whichever process has saved the letter.
NOTES = """
def note(letter):
    with open("notes", "a") as notes:
        print(letter.task_id, file=notes)
"""


def scribes(worker):
    """The saver processes of ``worker``."""
    own = (Path(f"/proc/{worker.pid}/task/{thread}/children") for thread in threads(worker))
    return [int(pid) for path in own for pid in path.read_text().split() if is_scribe(pid)]


def threads(worker):
    return os.listdir(f"/proc/{worker.pid}/task")


def is_scribe(pid):
    with suppress(OSError):
        return (
            b"celery_dlq.worker.writing.saver_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
    return False


def noted(project):
    notes = project.directory / "notes"
    return notes.read_text().split() if notes.exists() else []


def test_a_storm_is_saved_by_a_saver_process_and_survives_its_end(project):
    (project.directory / "notes.py").write_text(NOTES)
    project.settings = {"dlq_hooks": {"dead_letter": ["notes.note"]}}
    ids = {project.send("terminal", number) for number in range(LETTERS)}
    with project.worker("-c", "2") as worker:
        [first] = wait_for("a process that saves", lambda: scribes(worker))
        wait_for("letters", lambda: project.dlq.store.counts.letters(Filter()) > LETTERS / 10)
        os.kill(first, signal.SIGKILL)
        wait_for("all letters", lambda: project.dlq.store.counts.letters(Filter()) == LETTERS)
        wait_for("all hooks", lambda: ids <= set(noted(project)))
        left = scribes(worker)
    assert sum(project.dlq.store.monitoring.stats(datetime.now(timezone.utc)).arrivals) == LETTERS
    wait_for("the process that saves to end", lambda: not any(is_scribe(pid) for pid in left), 10.0)
