"""With a ring, values of messages are in no file that workers write: database, spool, flight recorder,
archive, log."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import uuid
from collections.abc import Iterable
from pathlib import Path

import pytest
from project import Project, wait_for
from support.factories import envelope, letter
from support.workers.processes import kill_with_its_pool
from zstandard import ZstdDecompressor

from celery_dlq import DeadLetter, Filter
from celery_dlq.model.states import State
from celery_dlq.recorder.files import look

pytestmark = [pytest.mark.slow, pytest.mark.service]

#: Whether contents in the store, and with it in the archive, are encrypted.
STORE = True

KEYS = {
    name: base64.b64encode(name.encode().ljust(32, b"k")).decode() for name in ("planted", "older")
}
NAMES = (
    "arg", "kwarg", "header", "message", "cause", "log", "attempt", "exit", "key", "judged",
    "malformed", "unknown", "wrong_kind", "away", "full", "running", "edited", "ordered", "handler",
    "ingested",
)  # fmt: skip
#: The values of changes, which come after the failures.
NOT_IN_LETTERS = {"edited", "ordered"}


@pytest.fixture
def planted() -> dict[str, str]:
    """The values, by the place of each in a message or a failure."""
    found = {name: f"planted-{name}-{uuid.uuid4().hex[:8]}" for name in NAMES}
    assert len(found) == 20
    return found


@pytest.fixture(params=["redis-sqlite", pytest.param("redis-postgres", marks=pytest.mark.nightly)])
def project(request, make_project, urls_of, tmp_path):
    (tmp_path / "archive").mkdir()
    project = make_project(*urls_of(request.param), module="proj_planted")
    project.settings = {
        "dlq_encryption_keys": KEYS,
        "dlq_archive_url": f"file://{tmp_path / 'archive'}",
        "dlq_hooks": {"dead_letter": ["proj_planted:hook"]},
        "dlq_handler_queue": project.queue,
        "dlq_spool_max_size": 1 << 20,
        "accept_content": ["json"],
    }
    project.app.conf.update(project.settings)
    project.environ["PROJ_STORE_TIMEOUT"] = "2"
    project.dlq.store.check_schema()
    return project


def send(project: Project, name: str, planted: dict[str, str], *names: str, **kwargs: str) -> str:
    """Send a message of this task with the values of these names."""
    options = {"headers": {"customer": planted["header"]}}
    args = ({name: planted[name] for name in names},)
    return project.app.send_task(f"proj.{name}", args, kwargs, **options).id


def test_no_file_has_a_value_of_a_message(project, planted, tmp_path):
    fail_in_all_ways(project, planted)
    spool_while_the_store_is_away(project, planted)
    run_until_killed(project, planted)
    missing = recover_and_redrive(project, planted)
    assert leaks(planted, tmp_path.rglob("*")) == []
    if project.store_url.startswith("postgresql") and STORE and shutil.which("pg_dump"):
        url = project.store_url.replace("+psycopg", "")
        dumped = subprocess.run(["pg_dump", url], capture_output=True, check=True).stdout
        assert [name for name, value in planted.items() if value.encode() in dumped] == []
    assert missing == NOT_IN_LETTERS, "the others were written, encrypted"


def leaks(planted: dict[str, str], paths: Iterable[Path]) -> list[str]:
    """The values in these files."""
    files = [path for path in paths if path.is_file() and (STORE or not _is_of_store(path))]
    assert files
    return [
        f"{name} in {path}"
        for path in files
        for name, value in planted.items()
        if value.encode() in _contents(path)
    ]


def _is_of_store(path: Path) -> bool:
    return path.name.startswith("store.sqlite3") or path.suffix == ".zst"


def _contents(path: Path) -> bytes:
    packed = path.read_bytes()
    return ZstdDecompressor().stream_reader(packed).read() if path.suffix == ".zst" else packed


def fail_in_all_ways(project: Project, planted: dict[str, str]) -> None:
    with project.worker("-c", "2", "--pool", "prefork"):
        ids = [
            send(project, "pay", planted, "arg", "message", "cause", "log", to=planted["kwarg"]),
            send(project, "again", planted, "attempt"),
            send(project, "leaves", planted, "exit"),
            send(project, "judged", planted, "judged", "key"),
            send(project, "gone", planted, "unknown"),
            send(project, "pay", planted, wrong=planted["wrong_kind"]),
        ]
        with project.app.connection_for_write() as connection:
            connection.Producer().publish(
                f"[{planted['malformed']}", routing_key=project.queue, content_type="application/json",
                content_encoding="utf-8", headers={"task": "proj.pay", "id": "malformed"},
            )  # fmt: skip
        handled = project.app.send_task(
            "proj.handled", kwargs={"planted": {"right": {"arg": planted["handler"]}}}
        ).id
        for task_id in (*ids, "malformed"):
            project.wait_for_letter(task_id)
        wait_for("the handler", lambda: project.letter(handled).state is State.RESOLVED)


def spool_while_the_store_is_away(project: Project, planted: dict[str, str]) -> None:
    """One letter fits into the spool, and goes there; the next one is in the log."""
    project.environ["PROJ_STORE"] = "postgresql+psycopg://nobody@127.0.0.1:1/none"
    with project.worker("-c", "1", "--pool", "threads"):
        send(project, "pay", planted, "away", "message", "cause", "log")
        wait_for("the spool", lambda: spooled(project))
        filler = project.directory / "spool" / "filler"
        filler.write_bytes(b"\0" * (1 << 20))
        send(project, "pay", planted, "full", "message", "cause", "log")
        wait_for("the log", lambda: "neither stored nor spooled" in project.logged())
        filler.unlink()
    del project.environ["PROJ_STORE"]
    assert leaks(planted, spooled(project)) == []


def run_until_killed(project: Project, planted: dict[str, str]) -> None:
    with project.worker("-c", "1") as process:
        send(project, "runs", planted, "running")
        wait_for("a task to begin", project.fixed.with_name("began").exists)
        kill_with_its_pool(process)
    [found] = look(project.dlq.recorder_dir)
    assert found.messages == 1
    assert leaks(planted, found.path.iterdir()) == []


def recover_and_redrive(project: Project, planted: dict[str, str]) -> set[str]:
    """Bring the letters into the store, change some, send them again, and archive them; returns the values
    that were in no letter before that."""
    for log in project.directory.glob("worker-*.log"):
        project.invoke("recover", str(log))
    message = envelope("in", body=json.dumps([[planted["ingested"]], {}, {}]).encode())
    project.dlq.store.letters.save([letter("in", task="proj.gone", envelope=message)])
    with project.worker("-c", "1"):
        wait_for("the drain", lambda: not spooled(project))
        wait_for("the lost letter", lambda: not [*look(project.dlq.recorder_dir)][1:])
        known = "".join(f"{one} {one.envelope.body.decode()}" for one in all_letters(project))
        ids = [one.task_id for one in all_letters(project) if one.task == "proj.pay" and one.args]
        project.dlq.edit(ids[0], who="ann", args=[{"cause": planted["edited"]}], why="wrong")
        project.fixed.touch()
        orders = ("--set", f"kwargs.to={planted['ordered']}", "--why", "right", "--yes")
        assert project.run("dlq", "redrive", *ids[:2], *orders).returncode == 0
        for task_id in ids[:2]:
            project.wait_for_letter(task_id, State.RESOLVED)
    assert project.invoke("archive", "run", "--all", "--yes").exit_code == 0
    return {name for name, value in planted.items() if value not in known}


def all_letters(project: Project) -> list[DeadLetter]:
    found = project.dlq.store.letters
    page = found.find(Filter(states=frozenset(State)), limit=100)
    return [found.get(one.task_id) for one in page.letters]


def spooled(project: Project) -> list[Path]:
    return [path for path in (project.directory / "spool").glob("*.jsonl") if path.stat().st_size]
