"""Stores that are slow, frozen, gone, read-only, full or of another schema: a real worker continues, and
each of its letters is in the store once when that is over."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from urllib.parse import urlsplit

import pytest
from project import Project, wait_for
from proxy import Proxy
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from support.factories import envelope, letter

from celery_dlq import Filter
from celery_dlq.spool.segment import decode
from celery_dlq.store.database import schema

pytestmark = [pytest.mark.slow, pytest.mark.service]

LETTERS = 20


@pytest.fixture(autouse=True)
def impatience(monkeypatch):
    monkeypatch.setenv("PROJ_STORE_TIMEOUT", "1")


@pytest.fixture
def postgres(postgres_url):
    """Statements for the server, each by itself."""
    engine = create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield lambda statement: connection.execute(text(statement))
    engine.dispose()


@pytest.fixture
def project(project):
    """A project whose store exists: a command does not make one."""
    project.dlq.store.check_schema()
    return project


@pytest.fixture
def proxy(postgres, postgres_url):
    parts = urlsplit(postgres_url)
    proxy = Proxy(parts.hostname, parts.port or 5432)
    yield proxy
    proxy.close()


def through(proxy, url):
    return make_url(url).set(port=proxy.port).render_as_string(hide_password=False)


@pytest.fixture
def on_postgres(make_project, redis_url, postgres_url, postgres):
    return make_project(f"{redis_url}/9", postgres_url)


@pytest.fixture
def behind_proxy(make_project, redis_url, postgres_url, proxy):
    return make_project(f"{redis_url}/9", through(proxy, postgres_url))


def spooled(project: Project) -> set[str]:
    """The ids of the letters that are spooled. A store that is merely slow may have them too."""
    lines: list[bytes] = []
    for path in (project.directory / "spool").glob("*.jsonl"):
        with suppress(FileNotFoundError):  # drained since
            lines += path.read_bytes().splitlines(keepends=True)
    return {decode(line).task_id for line in lines if line.endswith(b"\n")}


def check_that_no_letter_is_lost(project: Project, away) -> None:
    """One worker, before, during and after the time that the store is away."""
    with project.worker("-c", "2"):
        sent = {project.send("terminal", 0)}
        wait_for("a letter in the store", lambda: project.count() == 1)
        with away():
            later = {project.send("terminal", n) for n in range(LETTERS)}
            wait_for("the spool", lambda: later <= spooled(project))
        check_that_all_are_drained(project, sent | later)


def check_that_all_are_drained(project: Project, sent: set[str]) -> None:
    wait_for("the drain", lambda: project.count() == len(sent))
    wait_for("an empty spool", lambda: not spooled(project))
    page = project.dlq.store.letters.find(Filter(queue=project.queue), limit=100)
    assert {letter.task_id for letter in page.letters} == sent
    assert {letter.attempt_count for letter in page.letters} == {1}, "each once"


def test_a_store_that_is_slow(on_postgres, postgres_url):
    """A lock on the table holds every statement up."""

    @contextmanager
    def locked():
        engine = create_engine(postgres_url)
        with engine.begin() as connection:
            connection.execute(text("LOCK TABLE celery_dead_letter IN ACCESS EXCLUSIVE MODE"))
            yield
        engine.dispose()

    check_that_no_letter_is_lost(on_postgres, locked)


def test_a_store_that_is_frozen(behind_proxy, proxy):
    """Connections stay open, and no timeout of the database's own ends them."""

    @contextmanager
    def frozen():
        proxy.hold()
        yield
        proxy.flow()

    check_that_no_letter_is_lost(behind_proxy, frozen)


def test_a_store_that_restarts(behind_proxy, proxy):
    @contextmanager
    def gone():
        proxy.cut()
        yield
        proxy.restore()

    check_that_no_letter_is_lost(behind_proxy, gone)


def test_a_worker_starts_while_the_store_is_away(make_project, redis_url, postgres_url, proxy):
    """Also one whose settings have automatic redrives."""
    project = make_project(f"{redis_url}/9", through(proxy, postgres_url), module="proj_auto")
    proxy.cut()
    with project.worker("-c", "1"):
        sent = {project.send("terminal", n) for n in range(LETTERS)}
        wait_for("the spool", lambda: sent <= spooled(project))
        proxy.restore()
        check_that_all_are_drained(project, sent)


def test_a_store_that_is_read_only(on_postgres, postgres, postgres_url):
    name = make_url(postgres_url).database
    break_connections = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        f"WHERE datname = '{name}' AND pid <> pg_backend_pid()"
    )

    @contextmanager
    def read_only():
        postgres(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        postgres(break_connections)
        yield
        postgres("SET default_transaction_read_only = off")
        postgres(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        postgres(break_connections)

    check_that_no_letter_is_lost(on_postgres, read_only)


def test_a_store_that_is_full(make_project, redis_url, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")

    @contextmanager
    def full():
        with (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                try:
                    filler.write(b"x" * 4096)
                except OSError:
                    break
        yield
        (disk / "filler").unlink()

    try:
        project = make_project(f"{redis_url}/9", f"sqlite:///{disk}/store.sqlite3")
        check_that_no_letter_is_lost(project, full)
        project.dlq.store.close()
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_schema_that_is_older_or_newer(on_postgres, postgres):
    sent = set()
    for version in ("0000", "0024", "9999"):
        postgres(f"UPDATE celery_dlq_version SET version_num = '{version}'")
        try:
            with on_postgres.worker("-c", "1"):
                sent |= {on_postgres.send("terminal", n) for n in range(LETTERS)}
                wait_for(f"the spool, with {version}", lambda: spooled(on_postgres) == sent)  # noqa: B023
        finally:
            postgres(f"UPDATE celery_dlq_version SET version_num = '{schema.HEAD}'")
        assert on_postgres.count() == 0, version
    with on_postgres.worker("-c", "1"):
        check_that_all_are_drained(on_postgres, sent)


def test_a_schema_that_becomes_newer_while_a_worker_runs(on_postgres, postgres):
    on_postgres.module = "proj_newer"
    with on_postgres.worker("-c", "2"):
        sent = {on_postgres.send("terminal", 0)}
        wait_for("a letter in the store", lambda: on_postgres.count() == 1)
        postgres("UPDATE celery_dlq_version SET version_num = '9999'")
        try:
            wait_for(
                "a letter in the spool",
                lambda: spooled(on_postgres) or _send_one(on_postgres, sent),
            )
            later = {on_postgres.send("terminal", n) for n in range(LETTERS)}
            wait_for("the spool", lambda: later <= spooled(on_postgres))
        finally:
            postgres(f"UPDATE celery_dlq_version SET version_num = '{schema.HEAD}'")
        check_that_all_are_drained(on_postgres, sent | later)


def _send_one(project, sent):
    sent.add(project.send("terminal", 0))
    time.sleep(1)


def test_the_command_line_drains_files_that_no_worker_drains(project, tmp_path):
    nowhere = "postgresql+psycopg://root@127.0.0.1:1/nowhere"
    away = Project(tmp_path, project.broker, nowhere, queue=project.queue)
    # Whenever the worker has tried the store again, its file is free for a moment.
    away.environ["PROJ_STORE_PAUSE_S"] = "600"
    with away.worker("-c", "2"):
        sent = {away.send("terminal", n) for n in range(LETTERS)}
        wait_for("the spool", lambda: spooled(away) == sent)
        held = project.run("dlq", "recover")
        assert held.returncode == 4
        assert "Left to the workers that use them" in held.stderr
    refused = away.run("dlq", "recover")
    assert (refused.returncode, spooled(away)) == (3, sent)
    done = project.run("dlq", "recover")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{LETTERS} records drained")
    check_that_all_are_drained(project, sent)


def test_without_store_and_disk_the_workers_log_brings_every_letter_back(project, tmp_path):
    nowhere = "postgresql+psycopg://root@127.0.0.1:1/nowhere"
    away = Project(tmp_path, project.broker, nowhere, queue=project.queue)
    (tmp_path / "spool").write_text("a file in the place of the directory")
    with away.worker("-c", "2"):
        [log] = tmp_path.glob("worker-*.log")
        sent = {away.send("terminal", n) for n in range(LETTERS)}
        wait_for("the log", lambda: log.read_bytes().count(b"nor spooled") == LETTERS)
    done = project.run("dlq", "recover", str(log))
    assert (done.returncode, done.stdout) == (0, f"{LETTERS} records stored.\n"), done.stderr
    check_that_all_are_drained(project, sent)


def test_two_that_drain_at_once_store_each_letter_once(project):
    spool = project.dlq.spool
    sent = set()
    for n in range(10):
        spool.append(
            [
                letter(f"{project.queue}-{n}-{m}", envelope=envelope(queue=project.queue))
                for m in range(50)
            ]
        )
        sent |= {f"{project.queue}-{n}-{m}" for m in range(50)}
        spool.close()
    command = project.command("dlq", "recover")
    options = {
        "env": project.environment,
        "cwd": project.directory,
        "stdout": subprocess.PIPE,
        "text": True,
    }
    both = [subprocess.Popen(command, **options) for _ in range(2)]
    said = [process.communicate(timeout=60)[0] for process in both]
    # The first to end may leave a file to the other one, which then finds the spool empty.
    assert sorted(process.returncode for process in both) in ([0, 0], [0, 4])
    assert sum(int(text.split()[0]) for text in said) == len(sent), "each file by one of them"
    page = project.dlq.store.letters.find(Filter(queue=project.queue), limit=1_000)
    assert {letter.task_id for letter in page.letters} == sent
    [group] = project.dlq.store.groups.find(Filter(), now=datetime.now(timezone.utc))
    assert group.total_count == len(sent)
