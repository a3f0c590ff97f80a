"""A worker, its redrives and its screens share a PgBouncer in transaction mode with another program."""

import json
import threading

import psycopg
import pytest
from project import wait_for
from sqlalchemy.engine import make_url
from support.servers.pgbouncer import pgbouncer

from celery_dlq import Filter
from celery_dlq.model.states import State
from celery_dlq.store.database.clock import now

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.service]

#: The time limit of the store's statements, and the time that the neighbour's take.
TIMEOUT_S, LONG_S = 2, 3


class Neighbour:
    """Runs long statements through the same PgBouncer, one after another, until it is stopped."""

    def __init__(self, url):
        at = make_url(url)
        self._at = {"host": at.host, "port": at.port, "dbname": at.database, "user": at.username}
        self.ended, self.cancelled, self.timeouts = 0, [], set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopping.set()
        self._thread.join(60)

    def _run(self):
        with psycopg.connect(**self._at, autocommit=True, prepare_threshold=None) as connection:
            while not self._stopping.is_set():
                try:
                    connection.execute(f"SELECT pg_sleep({LONG_S})")
                    self.ended += 1
                except psycopg.errors.QueryCanceled as error:
                    self.cancelled.append(str(error))
                self.timeouts.add(connection.execute("SHOW statement_timeout").fetchone()[0])


def test_capture_redrive_and_screens_work_and_the_neighbour_is_left_alone(
    make_project, redis_url, postgres_url
):
    with pgbouncer(postgres_url, servers=3) as url, Neighbour(url) as neighbour:
        project = make_project(f"{redis_url}/9", url, settings={"dlq_store_timeout": TIMEOUT_S})
        with project.worker("-c", "2"):
            ids = [project.send("terminal", number) for number in range(30)]
            for task_id in ids:
                project.wait_for_letter(task_id)
            look_at_all(project, ids)
            project.fixed.touch()
            done = project.run("dlq", "redrive", "--all", "--yes", "--rate", "20/s", "--wait", "1m")
            assert done.returncode == 0, done.stdout + done.stderr
            assert "Sent 30 of 30 dead letters: 30 succeeded." in done.stdout
            shown = project.run("dlq", "operations", "list", "--format", "json")
            assert [one["state"] for one in json.loads(shown.stdout)] == ["done"], shown.stderr
            wait_for("two more of the neighbour's", lambda: neighbour.ended >= 4)
        assert project.count(states=frozenset({State.RESOLVED})) == 30
        project.dlq.store.close()
    assert (neighbour.cancelled, neighbour.timeouts) == ([], {"0"})


def look_at_all(project, ids):
    """Read the store by command, and as Flower's pages do."""
    for words in (["list"], ["show", ids[0]], ["groups"]):
        shown = project.run("dlq", *words)
        assert shown.returncode == 0, shown.stdout + shown.stderr
    store = project.dlq.store
    at = store.database.read(now)
    [group] = store.groups.find(Filter(), now=at)
    assert group.open_count == 30
    assert len(store.letters.find(Filter(group=group.fingerprint), limit=50).letters) == 30
    assert store.monitoring.stats(at).depth == 30
