"""Commands where the store does not exist: none of them makes one, which would be empty and look calm."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3

import click
import pytest
from celery import Celery
from support.factories import letter

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.cli import dlq
from celery_dlq.cli.exits import STORE
from celery_dlq.spool.directory import Spool
from celery_dlq.store.base import Filter
from celery_dlq.upkeep.automation.definition import AutoRedrive
from celery_dlq.upkeep.retention import Keep, Retention
from celery_dlq.worker.task import DLQTask

#: Commands that do not ask the store, with their exit statuses; ``doctor`` ends with 1 if it finds an error.
WITHOUT_STORE = {
    "db sql": 0, "doctor": 1, "drill": 1,
    "explain": 0,
    "help": 0,
}  # fmt: skip

#: The one command that makes it, and those that do not end.
OTHERS = {"db upgrade", "exporter"}

#: What a command needs; a word for each of its arguments, otherwise.
GIVEN = {
    "archive export": ["--parquet", "new.parquet"],
    "archive restore": ["--all", "--yes"],
    "archive run": ["--all", "--yes"],
    "auto history": [],
    "check": ["--max-depth", "1"],
    "delete": ["--all", "--yes"],
    "discard": ["--all", "--yes", "--why", "tested"],
    "explain": ["ValueError"],
    "forget": ["--task-id", "1", "--why", "tested", "--yes"],
    "help": ["settings"],
    "reclassify": ["--all"],
    "redrive": ["--all", "--yes"],
    "recover": [],
    "unpark": ["--all", "--yes"],
}


def commands(group=dlq, *names):
    """The names of all commands."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if not isinstance(command, click.Group):
            yield " ".join([*names, name]), command
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)


def words(name, command):
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    return [*name.split(), *GIVEN.get(name, ["x"] * len(arguments))]


@pytest.fixture
def app(tmp_path, monkeypatch):
    """An app without a setting for its store, in an empty directory."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    (elsewhere / "archive").mkdir(parents=True)
    monkeypatch.chdir(here)
    app = Celery("shop", broker="memory://", set_as_current=False)
    app.conf.dlq_spool_dir = str(elsewhere / "spool")
    app.conf.dlq_archive_url = f"file://{elsewhere}/archive"
    app.conf.dlq_retention = Retention(letters=[Keep(None)])
    app.conf.dlq_auto_redrive = [AutoRedrive("x", where=Filter(task="shop.charge"))]

    @app.task(name="shop.charge", base=DLQTask, shared=False)
    def charge(order_id):
        return order_id

    DeadLetterQueue.of(app).handler(name="x", all=True)(lambda letter: None)
    with contextlib.closing(Spool(elsewhere / "spool")) as spool:
        spool.keep([letter()])
    (spooled,) = (elsewhere / "spool").glob("*.jsonl")
    shutil.copy(spooled, elsewhere / "spool" / "given.jsonl")
    yield app
    app.close()


@pytest.mark.parametrize(
    ("name", "command"),
    [pytest.param(*one, id=one[0]) for one in commands() if one[0] not in OTHERS],
)
def test_a_command_makes_no_store(run, tmp_path, terminal, monkeypatch, name, command):
    terminal.sit_down()
    monkeypatch.setenv("EDITOR", "true")
    result = run(*words(name, command))
    assert result.exit_code == WITHOUT_STORE.get(name, STORE), result.output
    assert not [*tmp_path.glob("**/*.sqlite3*")]
    if name not in WITHOUT_STORE or name == "doctor":
        said = " ".join(result.output.split())
        assert "No store is set: looked for" in said
        assert "does not exist" in said
        assert "CELERY_DLQ_STORE_URL" in said
        assert "dlq db upgrade" in said
        # It may be longer than a line.
        assert f"{tmp_path}/here/celery_dlq.sqlite3" in "".join(result.output.split())


def test_spooled_letters_stay_in_the_spool(run, tmp_path):
    assert run("recover").exit_code == STORE
    assert '"shop.charge"' in "".join(
        file.read_text() for file in tmp_path.glob("elsewhere/spool/*.jsonl")
    )


def test_an_upgrade_makes_it(run, tmp_path):
    assert run("db", "upgrade").exit_code == 0
    assert run("stats").exit_code == 0
    assert (tmp_path / "here" / "celery_dlq.sqlite3").exists()


def test_a_file_without_a_schema_stays_empty(run, tmp_path):
    file = tmp_path / "here" / "celery_dlq.sqlite3"
    file.touch()
    result = run("stats")
    assert result.exit_code == STORE
    assert "no schema yet; run: celery -A <app> dlq db upgrade" in result.stderr
    with contextlib.closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


def test_a_store_that_was_set_is_named_as_one(run, app, tmp_path):
    app.conf.dlq_store_url = "sqlite:///dead_letters.sqlite3"
    result = run("stats")
    assert result.exit_code == STORE
    missing = f"The store {tmp_path}/here/dead_letters.sqlite3 does not exist"
    assert f"{missing}; set CELERY_DLQ_STORE_URL, or dlq_store_url" in result.stderr
    assert not [*tmp_path.glob("**/*.sqlite3*")]


def test_doctor_says_which_store_it_is(run, tmp_path):
    assert run("db", "upgrade").exit_code == 0
    said = " ".join(run("doctor").output.split())
    assert f"sqlite:///{tmp_path}/here/celery_dlq.sqlite3 (the default) answers" in said
