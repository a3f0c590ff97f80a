"""The lock of a worker's directory: it lasts exactly as long as the worker."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from celery_dlq.base.process import boot_of, identity
from celery_dlq.recorder import owner as owner_module
from celery_dlq.recorder.files import FilesState, locked_files, look
from celery_dlq.recorder.owner import (
    HALF_MADE_S,
    SILENT_S,
    Looker,
    OwnDirectory,
    owner_in,
    pool_may_run,
    remove_half_made,
)

#: Makes a directory, and waits; with "fork", in two processes, of which the child says its id.
PROGRAM = """
import os, sys, time
from pathlib import Path
from celery_dlq.recorder.owner import OwnDirectory

own = OwnDirectory(Path(sys.argv[1]), "w@host")
if "fork" not in sys.argv or os.fork() == 0:
    print(os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.fixture
def start(tmp_path):
    started = []

    def start(*options):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path), *options],
            stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def states(parent):
    return [one.state for one in look(parent)]


def kill(process):
    process.kill()
    process.wait()


def test_the_lock_is_free_when_the_process_was_killed(start, tmp_path):
    process, _ = start()
    assert states(tmp_path) == [FilesState.IN_USE]
    kill(process)
    assert states(tmp_path) == [FilesState.GONE]


def test_a_child_that_outlives_its_parent_does_not_keep_the_lock(start, tmp_path):
    process, child = start("fork")
    kill(process)
    os.kill(int(child), 0)  # it lives
    assert states(tmp_path) == [FilesState.GONE]


def test_a_fork_leaves_the_parents_lock_as_it_is(tmp_path):
    own = OwnDirectory(tmp_path, "w@host")
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert states(tmp_path) == [FilesState.IN_USE]
    own.release()


def test_two_workers_with_one_name_have_directories_of_their_own(start, tmp_path):
    first, _ = start()
    start()
    assert len({one.path for one in look(tmp_path)}) == 2
    kill(first)
    assert sorted(states(tmp_path)) == [FilesState.GONE, FilesState.IN_USE]


def test_the_directory_and_its_parents_are_private(tmp_path):
    own = OwnDirectory(tmp_path / "spool" / "recorder", "w@host")
    made = (own.path, own.path.parent, own.path.parent.parent)
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700] * 3
    assert (own.path / "owner.json").stat().st_mode & 0o777 == 0o600
    own.release()
    assert list(look(tmp_path / "spool" / "recorder")) == []


@pytest.fixture
def of_another_machine(tmp_path):
    """The directory of a process on another machine, which shares the volume but not the locks."""
    own = OwnDirectory(tmp_path, "w@elsewhere")
    path = own.path / "owner.json"
    said = json.loads(path.read_text())
    said["process"] = "other-boot/4026531836:7:99"
    path.write_text(json.dumps(said))
    own.close()
    return path


@pytest.mark.parametrize(
    ("silent_s", "state"), [(SILENT_S - 60, FilesState.IN_USE), (SILENT_S + 60, FilesState.GONE)]
)
def test_a_process_elsewhere_lives_while_it_shows_life(
    of_another_machine, tmp_path, silent_s, state
):
    at = time.time() - silent_s
    os.utime(of_another_machine, (at, at))
    assert states(tmp_path) == [state]
    with locked_files(of_another_machine.parent) as found:
        assert (found is not None) == (state is FilesState.GONE)
    assert sorted(tmp_path.iterdir()) == [of_another_machine.parent], "the clock's file is gone"


def test_a_beat_shows_life_and_notices_a_removed_directory(tmp_path):
    own = OwnDirectory(tmp_path, "w@host")
    path = own.path / "owner.json"
    os.utime(path, (0, 0))
    assert own.beat()
    assert path.stat().st_mtime > 0
    path.unlink()
    assert not own.beat()
    own.close()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", '{"worker": "w"}', '{"worker": 1, "host": "h", "pid": 1, '
             '"process": 5, "began_at": ""}'],
)  # fmt: skip
def test_a_damaged_owner_is_unknown_and_its_files_are_recovered(tmp_path, text):
    directory = tmp_path / "host-7-abc"
    directory.mkdir()
    (directory / "owner.json").write_text(text)
    assert owner_in(directory) is None
    assert states(tmp_path) == [FilesState.GONE]
    with locked_files(directory) as found:
        assert found.worker == ""
        found.finish()
    assert not directory.exists()


def test_a_file_system_without_locks_leaves_nothing_behind(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(OSError, match="No locks"):
        OwnDirectory(tmp_path, "w@host")
    assert list(tmp_path.iterdir()) == []


def half_made(parent, age_s):
    directory = parent / ".host-7-0123456789ab"
    directory.mkdir()
    (directory / "owner.json").touch()
    at = time.time() - age_s
    os.utime(directory, (at, at))
    return directory


def test_a_directory_that_was_not_made_to_its_end_is_deleted_later(tmp_path):
    directory = half_made(tmp_path, HALF_MADE_S - 60)
    assert list(look(tmp_path)) == []
    remove_half_made(tmp_path)
    assert directory.exists()
    os.utime(directory, (0, 0))
    remove_half_made(tmp_path)
    assert not directory.exists()


def test_but_not_while_its_process_makes_it(tmp_path):
    directory = half_made(tmp_path, 2 * HALF_MADE_S)
    with (directory / "owner.json").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        remove_half_made(tmp_path)
    assert directory.exists()


def test_a_directory_of_another_user_does_not_hide_the_others(tmp_path, monkeypatch):
    recorders = [OwnDirectory(tmp_path, f"{name}@host") for name in ("a", "b")]
    for one in recorders:
        one.close()
    hidden = min(one.path for one in recorders)

    def lock_of_gone(directory):
        if directory == hidden:
            raise PermissionError(errno.EACCES, "Permission denied", str(directory))
        return original(directory)

    original = owner_module.lock_of_gone
    monkeypatch.setattr(owner_module, "lock_of_gone", lock_of_gone)
    assert states(tmp_path) == [FilesState.UNREADABLE, FilesState.GONE]


def test_a_process_of_the_pool_may_outlive_its_parent(tmp_path, start):
    parent, child = start("fork")
    [directory] = tmp_path.iterdir()
    assert pool_may_run(directory)
    kill(parent)
    assert states(tmp_path) == [FilesState.GONE]
    assert pool_may_run(directory)
    os.kill(int(child), signal.SIGKILL)
    deadline = time.monotonic() + 30
    while pool_may_run(directory):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_directory_of_an_earlier_release_or_another_machine_tells_nothing_about_the_pool(
    tmp_path,
):
    own = OwnDirectory(tmp_path, "w@host")
    own.close()
    assert not pool_may_run(own.path)
    path = own.path / "owner.json"
    found = path.read_text()
    path.write_text(found.replace(boot_of(identity()), "another-boot"))
    assert pool_may_run(own.path)
    path.write_text(found)
    (own.path / "pool.lock").unlink()
    assert pool_may_run(own.path)


def test_one_looker_at_a_time(tmp_path):
    with subprocess.Popen(
        [
            sys.executable, "-c",
            "import sys, time; from pathlib import Path; from celery_dlq.recorder.owner import Looker; "
            "looker = Looker(Path(sys.argv[1])); print(looker.looks(), flush=True); time.sleep(600)",
            str(tmp_path),
        ],
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "True\n"
        looker = Looker(tmp_path)
        assert not looker.looks()
        process.kill()
        process.wait()
    assert looker.looks()
    looker.close()
    assert not Looker(tmp_path / "missing").looks()
