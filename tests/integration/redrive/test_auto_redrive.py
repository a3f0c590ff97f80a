"""Automatic redrive by real workers.

``make kills`` makes the test with kills longer, by the environment variables ``CELERY_DLQ_AUTO_LETTERS``,
``CELERY_DLQ_AUTO_KILLS`` and ``CELERY_DLQ_AUTO_WORKERS``.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from project import wait_for
from sqlalchemy import text
from support.workers.processes import kill_with_its_pool

from celery_dlq import State
from celery_dlq.model.automation import EVERY, AutoState

LETTERS = int(os.environ.get("CELERY_DLQ_AUTO_LETTERS", "60"))
KILLS = int(os.environ.get("CELERY_DLQ_AUTO_KILLS", "3"))
WORKERS = int(os.environ.get("CELERY_DLQ_AUTO_WORKERS", "2"))
PER_LETTER = 3
PATIENCE_S = 150.0 + LETTERS / 10

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service,
    pytest.mark.timeout(600 + LETTERS / 5 + 20 * KILLS),
]


def auto_project(make_project, broker_url, store_url):
    # Kills deliver messages again, and 20 at a time wait for their one process.
    settings = {"dlq_max_deliveries": 1_000}
    project = make_project(broker_url, store_url, module="proj_auto", settings=settings)
    if broker_url.startswith("redis"):
        # Messages of a killed worker come back soon.
        options = {"visibility_timeout": 5, "unacked_mutex_expire": 5}
        project.environ["PROJ_TRANSPORT"] = json.dumps(options)
    project.dlq.store.check_schema()
    return project


def set_state(project, state: AutoState, name: str = EVERY) -> None:
    store = project.dlq.store
    store.automations.set_state(name, state, who="tester", now=store.now())


def resolved(project) -> int:
    return project.count(states=frozenset({State.RESOLVED}))


def tries(project, task_ids) -> Counter[str]:
    """How often each letter was sent by automatic redrives."""
    store = project.dlq.store
    return Counter(
        task_id for task_id in task_ids for _sending in store.sendings.of_letter(task_id)
    )


def copies_of_redrives(project) -> Counter[tuple[str, str]]:
    """How many copies of each redrive have run, by letter and redrive."""
    copies = {tuple(line.split(maxsplit=2)) for line in project.lines("copies")}
    return Counter((number, redrive) for number, redrive, *_copy in copies if redrive != "0")


def is_alive(node: str, workers) -> str:
    """``node`` if it is one of the living workers; otherwise empty."""
    return node if node in workers and workers[node].poll() is None else ""


def holder(project) -> str:
    """The node of the worker that runs automatic redrives; empty while no worker does."""
    query = text("SELECT holder FROM celery_dlq_lease WHERE name LIKE 'auto.%'")
    held = project.dlq.store.transactions.read(lambda one: one.execute(query).scalar())
    return str(held).split("/")[-2] if held else ""


@pytest.mark.parametrize("pair", ["redis-postgres", "rabbitmq-mysql"])
def test_all_go_back_though_the_worker_that_sends_them_is_killed(pair, make_project, urls_of):
    project = auto_project(make_project, *urls_of(pair))
    set_state(project, AutoState.PAUSED)
    workers = {}

    def start() -> Path:
        process, log = project.start_worker("-c", "1")
        workers[project.nodes[-1]] = process
        return log

    try:
        for log in [start() for _ in range(WORKERS)]:
            wait_for("a worker", lambda log=log: b" ready." in log.read_bytes(), PATIENCE_S)
        ids = [project.send("auto", number) for number in range(LETTERS)]
        wait_for("all to die", lambda: project.count() == LETTERS, PATIENCE_S)
        project.fixed.touch()
        set_state(project, AutoState.ACTIVE)
        killed = set()
        while len(killed) < KILLS and resolved(project) < LETTERS:
            node = wait_for("a holder", lambda: is_alive(holder(project), workers), PATIENCE_S)
            kill_with_its_pool(workers.pop(node))
            killed.add(node)
            start()
            wait_for("another holder", lambda: is_alive(holder(project), workers), PATIENCE_S)
        wait_for("all to succeed", lambda: resolved(project) == LETTERS, PATIENCE_S)
    finally:
        for process in workers.values():
            kill_with_its_pool(process)
    assert max(tries(project, ids).values()) <= PER_LETTER
    assert set(project.lines("runs")) == {str(number) for number in range(LETTERS)}
    assert project.dlq.store.automations.count_held() == {}
    assert len(killed) == KILLS, "there were too few letters for this many kills"
    assert copies_of_redrives(project).keys() >= {(str(number), "1") for number in range(LETTERS)}
    assert max(copies_of_redrives(project).values()) == 1, "two copies of one redrive have run"


def test_nothing_goes_back_while_the_circuit_is_open(make_project, redis_url, tmp_path):
    store_url = f"sqlite:///{tmp_path / 'letters.sqlite3'}"
    project = auto_project(make_project, f"{redis_url}/9", store_url)
    set_state(project, AutoState.PAUSED)
    store, ids = project.dlq.store, []
    with project.worker("-c", "2"):

        def circuit_is_open() -> bool:
            ids.append(project.send("call", len(ids)))
            return bool(store.circuits.read_open().circuits) and project.count() > 0

        wait_for("the circuit to open", circuit_is_open)
        set_state(project, AutoState.ACTIVE)
        looks = set()

        def third_look() -> bool:
            circuit_is_open()  # so that there is a steady load
            status = store.automations.statuses().get("outage")
            looks.add(status.looked_at if status else None)
            return len(looks - {None}) >= 3

        wait_for("three looks of the automatic redrive", third_look)
        assert store.automations.find(name="outage").rows == ()
        died = project.count(states=frozenset({State.DEAD}))
        project.fixed.touch()
        wait_for("all that died to succeed", lambda: resolved(project) == died)
        wait_for("what was parked to run", lambda: project.count() == 0)
    assert died > 0
    assert max(tries(project, ids).values()) <= PER_LETTER


def test_what_a_trial_names_is_what_is_then_sent(make_project, redis_url, tmp_path):
    store_url = f"sqlite:///{tmp_path / 'letters.sqlite3'}"
    project = auto_project(make_project, f"{redis_url}/9", store_url)
    set_state(project, AutoState.PAUSED)
    autos = project.dlq.store.automations

    def named(name: str) -> set[str]:
        return {one.task_id for one in autos.find(name=name, limit=100).rows}

    with project.worker("-c", "2"):
        ids = {project.send("auto", number) for number in range(20)}
        wait_for("all to die", lambda: project.count() == 20)
        set_state(project, AutoState.PAUSED, "fix")
        set_state(project, AutoState.ACTIVE)
        wait_for("the trial to name them", lambda: len(named("trial")) == 20)
        assert (tries(project, ids), project.count()) == ({}, 20)
        project.fixed.touch()
        set_state(project, AutoState.ACTIVE, "fix")
        wait_for("all to succeed", lambda: resolved(project) == 20)
    assert named("trial") == named("fix") == ids == tries(project, ids).keys()


def test_one_whose_fix_does_not_work_suspends_itself(make_project, redis_url, tmp_path):
    store_url = f"sqlite:///{tmp_path / 'letters.sqlite3'}"
    project = auto_project(make_project, f"{redis_url}/9", store_url)
    with project.worker("-c", "2"):
        ids = [project.send("auto", number) for number in range(20)]
        wait_for("it to be announced", lambda: project.lines("suspended"))
        status = project.dlq.store.automations.statuses()["fix"]
        sent = tries(project, ids)
    assert status.state is AutoState.SUSPENDED
    assert "redrives succeeded, fewer than 50%" in status.why or "was aborted" in status.why
    assert project.lines("suspended") == ["fix"]
    assert max(sent.values()) <= PER_LETTER
    # Not their runs: on a slow machine, the broker delivers a message again.
    redrives = Counter(number for number, _redrive in copies_of_redrives(project))
    assert max(redrives.values()) <= PER_LETTER


def test_nothing_is_sent_after_it_was_paused(make_project, redis_url, tmp_path):
    store_url = f"sqlite:///{tmp_path / 'letters.sqlite3'}"
    project = auto_project(make_project, f"{redis_url}/9", store_url)
    set_state(project, AutoState.PAUSED)
    with project.worker("-c", "2"):
        for number in range(10):
            project.send("auto", number)
        wait_for("all to die", lambda: project.count() == 10)
        project.fixed.touch()
        looked = project.run("dlq", "auto", "try", "fix", "--format", "json")
        assert len(json.loads(looked.stdout)["letters"]) == 10
        assert project.dlq.store.automations.find().rows == ()
        assert project.run("dlq", "auto", "resume").returncode == 0
        wait_for("all to succeed", lambda: resolved(project) == 10)
    [entry, *_] = project.dlq.store.audit.find(act="redrive").rows
    assert entry.who == "auto:fix"
