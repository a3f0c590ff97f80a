"""pgmq, which keeps queues in tables of PostgreSQL, as the broker."""

import importlib.resources
import json

import psycopg
import pytest
from project import stop, wait_for

from celery_dlq import Reason, State

pgmq = pytest.importorskip("pgmq")
pytestmark = [
    pytest.mark.slow, pytest.mark.service, pytest.mark.nightly, pytest.mark.timeout(300),
]  # fmt: skip

OPTIONS = {
    "init_extension": False, "visibility_timeout": 10, "wait_time_seconds": 1, "polling_interval": 0.1,
}  # fmt: skip


@pytest.fixture(scope="module")
def pgmq_url(own_postgres_url):
    """A database with pgmq's tables and functions, without its extension."""
    url = own_postgres_url.replace("+psycopg", "")
    with psycopg.connect(url) as connection:
        connection.execute(importlib.resources.files(pgmq).joinpath("sql/pgmq.sql").read_bytes())
    return url.replace("postgresql", "pgmq")


@pytest.fixture
def project(make_project, pgmq_url):
    project = make_project(pgmq_url, environ={"PROJ_TRANSPORT": json.dumps(OPTIONS)})
    project.app.conf.broker_transport_options = OPTIONS
    project.dlq.store.check_schema()
    return project


def test_letters_are_made_and_redriven(project):
    with project.worker("-c", "1"):
        letters = [project.send("terminal", number) for number in range(3)]
        for letter in letters:
            project.wait_for_letter(letter)
        project.fixed.touch()
        done = project.run("dlq", "redrive", "--all", "--yes", "--wait")
        assert "Sent 3 of 3 dead letters: 3 succeeded." in done.stdout
        found = project.run("dlq", "doctor").stdout
    assert {project.letter(letter).state for letter in letters} == {State.RESOLVED}
    assert "workers cannot be asked here" in found


def test_a_task_that_kills_its_worker_is_stopped(project):
    project.fixed.with_name("killed").write_text("by\nothers\n")  # so it kills at once
    poison = project.send("kills_its_worker", 7)
    for _life in range(6):
        worker, log = project.start_worker("-c", "1")
        try:
            wait_for(
                "the worker's end, or the letter",
                lambda worker=worker: worker.poll() is not None or project.letter(poison),
            )
        finally:
            stop(worker, log)
        if project.letter(poison):
            break
    letter = project.wait_for_letter(poison)
    assert letter.reason is Reason.POISON
    assert len(project.lines("killed")) == 2 + 3
    assert "delivery 3 started" in letter.explanation.evidence
