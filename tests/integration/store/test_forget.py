"""After one person is forgotten, their values are in no table, segment, spool file, or line of our logs."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing

import pytest
from project import wait_for
from sqlalchemy import select
from support.factories import envelope, letter
from zstandard import ZstdDecompressor

from celery_dlq import Filter
from celery_dlq.model.group import Annotate
from celery_dlq.model.states import State
from celery_dlq.store.database import tables

pytestmark = [pytest.mark.slow, pytest.mark.service]

JO, AL = "jo.doe@example.com", "al.roe@example.com"
BODY = json.dumps([[7, JO], {}, {}]).encode()
EVERY = frozenset(State)

#: Each record of a log begins with the name of its logger.
LOG_FORMAT = "logger=%(name)s %(message)s"


@pytest.fixture(params=["redis-sqlite", "redis-postgres", "rabbitmq-mysql"])
def people(request, make_project, urls_of, tmp_path):
    (tmp_path / "archive").mkdir()
    settings = {
        "dlq_park_after": 1.0,
        "dlq_archive_url": f"file://{tmp_path / 'archive'}",
        "worker_log_format": LOG_FORMAT,
        "worker_task_log_format": LOG_FORMAT,
    }
    project = make_project(*urls_of(request.param), module="proj_people", settings=settings)
    project.app.conf.update(settings)
    # The commands find values by the names of their parameters.
    for name in ("charge", "mail"):
        project.app.task(name=f"proj.{name}", shared=False)(not_here)
    return project


def not_here(user_id, email): ...


def command(project, *words, status=0):
    result = project.invoke(*words)
    assert result.exit_code == status, result.stdout + result.stderr
    return result.stdout


def rows_with(project, text):
    """The tables that have a row in which ``text`` is, each with that row."""
    found = []
    for table in tables.metadata.tables.values():
        rows = project.dlq.store.database.read(
            lambda connection, table=table: connection.execute(select(table)).all()
        )
        found += [(table.name, row) for row in rows if text in repr(row)]
    return found


def archived(directory):
    """The contents of all files of the archive."""
    packed = [path.read_bytes() for path in (directory / "archive").rglob("*.zst")]
    return b"".join(ZstdDecompressor().stream_reader(one).read() for one in packed)


def own_records(log):
    """The records of our loggers."""
    return [one for one in re.split(r"^logger=", log, flags=re.M) if one.startswith("celery_dlq")]


def live(project):
    """Letters of two people die, are changed, sent back, closed, archived, restored, and spooled."""
    store = project.dlq.store
    message = envelope("spooled", body=BODY, headers={"id": "spooled", "task": "proj.charge"})
    spool(project, letter("spooled", message=JO, envelope=message))
    with project.worker("-c", "2"):
        project.wait_for_letter("spooled")
        ids = [project.send("charge", 7, JO) for _ in range(6)]
        ids += [project.send("charge", user_id=7, email=JO), project.send("mail", 7, JO)]
        others = [project.send("charge", 8, AL), project.send("mail", 8, AL)]
        for task_id in (*ids, *others):
            project.wait_for_letter(task_id)
        project.dlq.edit(ids[0], who="ann", args=[8, "changed"], why=f"{JO} was wrong")
        again = ("--search", JO, "--set", f"kwargs.email={JO}", "--why", f"for {JO}", "--yes")
        # Whether the command sees that it failed again depends on which is faster.
        assert project.run("dlq", "redrive", ids[6], *again).returncode in (0, 1)
        wait_for("the redrive to fail", lambda: len(project.letter(ids[6]).attempts) == 2)
    group = project.letter(ids[1]).fingerprint
    store.groups.triage(group, Annotate(note=f"Ask {JO}."), who="ann", now=store.now())
    for these, why in ((ids[1:4], f"{JO} paid"), (others[:1], "paid")):
        store.closing.discard(Filter(ids=tuple(these)), who="ann", why=why, now=store.now())
    command(project, "archive", "run", "--all", "--yes")
    command(project, "archive", "restore", ids[1], "--reopen")
    spool(project, project.letter(ids[4]))
    return ids, others


def spool(project, found):
    project.dlq.spool.append([found])
    project.dlq.spool.close()


def test_the_values_of_one_person_are_found_nowhere(people, tmp_path):
    ids, others = live(people)
    tables_before = {name for name, _row in rows_with(people, JO)}
    assert tables_before >= {
        "celery_dead_letter", "celery_dead_letter_content", "celery_dead_letter_attempt",
        "celery_dead_letter_group", "celery_dead_letter_change", "celery_dlq_audit",
        "celery_dlq_operation",
    }  # fmt: skip
    assert JO.encode() in archived(tmp_path)
    forget = ("forget", "--where", "args.user_id=7", "--why", "request 12", "--yes")
    assert "recover" in people.invoke(*forget).stderr
    command(people, "recover")
    command(people, *forget)
    said = command(people, "forget", "--where", f"args.email={JO}", "--why", "request 12", "--yes")

    assert rows_with(people, JO) == []
    assert JO.encode() not in archived(tmp_path)
    spooled = b"".join(
        path.read_bytes() for path in (tmp_path / "spool").rglob("*") if path.is_file()
    )
    assert JO.encode() not in spooled
    records = [one for log in tmp_path.glob("worker-*.log") for one in own_records(log.read_text())]
    assert any("drained" in one for one in records)
    assert not [one for one in records if JO in one]
    assert JO not in said
    if people.store_url.startswith("sqlite"):
        assert JO.encode() not in vacuumed(tmp_path / "store.sqlite3")

    left = people.dlq.store.letters.find(Filter(states=EVERY)).letters
    assert {one.task_id for one in left} == {others[1]}
    assert "archive" in command(people, "archive", "show", others[0])
    assert people.invoke("archive", "show", ids[2]).exit_code == 1
    command(people, "archive", "verify")


def vacuumed(path):
    """The bytes of a SQLite file without its free pages and its log."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()
