"""Workers are killed while the store is away, or while the disk of the flight recorder is full.

``CELERY_DLQ_WORKER_KILLS`` and ``CELERY_DLQ_WORKER_TASKS`` set the numbers, as in test_killed_workers.py.
"""

from __future__ import annotations

import random
import re
import time
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from chaos.disk import Disk
from chaos.servers import ServerError
from killed import (
    KILLS,
    LIFE_S,
    NOTICED_S,
    POOLS,
    TASKS,
    account_of,
    be_patient_with_the_broker,
    directories,
    log_of,
    send_noted,
    traces_of,
    wait_for_all,
    wait_for_recovery,
    worker,
    worker_with_a_run,
)
from project import Project, wait_for
from proxy import Proxy
from sqlalchemy.engine import make_url

pytestmark = [
    pytest.mark.slow, pytest.mark.nightly, pytest.mark.service,
    pytest.mark.timeout(600 + 60 * KILLS + TASKS / 5),
]  # fmt: skip

#: A share of the tasks fails, so that there are letters in the spool.
FAILURES = 0.1

#: The longest body, in seconds, while the disk is full: until the recorder tries again, the tasks must not
#: run out.
LONG_BODY_S = 0.5
TASKS_OF_A_FULL_DISK = 120

UNCOVERED = "the flight recorder cannot write to"
COVERED_AGAIN = "the flight recorder writes to"


@pytest.fixture
def proxy(postgres_url):
    parts = urlsplit(postgres_url)
    proxy = Proxy(parts.hostname, parts.port or 5432)
    yield proxy
    proxy.close()


@pytest.mark.parametrize(
    ("broker", "pool"),
    [("redis", "prefork"), ("rabbitmq", "threads")],
)
def test_the_store_is_away_while_workers_are_killed(
    make_project, urls_of, proxy, monkeypatch, broker, pool
):
    monkeypatch.setenv("PROJ_STORE_TIMEOUT", "5")
    broker_url, store_url = urls_of(f"{broker}-postgres")
    behind_proxy = make_url(store_url).set(port=proxy.port)
    project = make_project(
        broker_url, behind_proxy.render_as_string(hide_password=False), module="proj_recorded"
    )
    be_patient_with_the_broker(project)
    project.dlq.store.check_schema()
    chance = random.Random(f"{pool} {broker}")
    # The workers live half as long again as those of test_killed_workers.py, on average.
    send_noted(project, 3 * TASKS // 2, chance, failures=FAILURES)

    kills = []
    for _ in range(KILLS // 2):
        with worker_with_a_run(project, *POOLS[pool], kills=kills):
            time.sleep(chance.uniform(0, LIFE_S))
            proxy.cut()
            time.sleep(chance.uniform(0, LIFE_S))
        left = directories(project)
        assert left
        with worker_with_a_run(project, *POOLS[pool], kills=kills):  # which cannot recover them
            time.sleep(chance.uniform(0, LIFE_S))
        assert left <= directories(project)
        proxy.restore()

    with worker(project, *POOLS[pool]) as last:
        wait_for_all(project)
        wait_for_recovery(project, last)
        wait_for_all(project)
        last.terminate()
        last.wait(60)

    wait_for("the spool to be drained", lambda: not is_spooled(project) or drain(project))
    account = account_of(project, kills)
    print(f"\n{broker} {pool}, the store away: {account}")
    assert not account.vanished, traces_of(project, account, account.vanished)
    assert not account.doubled
    assert {n: s for n, s in account.needless.items() if s > NOTICED_S} == {}
    assert not account.told_twice, traces_of(project, account, account.told_twice)
    assert not directories(project)


def is_spooled(project: Project) -> bool:
    return any((project.directory / "spool").glob("*.jsonl"))


def drain(project: Project) -> bool:
    """Drain what the last worker left."""
    done = project.run("dlq", "recover")
    return done.returncode == 0


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_the_disk_is_full_while_workers_are_killed(make_project, urls_of, tmp_path, pool):
    disk = full_disk(tmp_path / "disk")
    try:
        project = make_project(*urls_of("redis-sqlite"), module="proj_recorded")
        be_patient_with_the_broker(project)
        recorder_dir = str(disk.directory / "recorder")
        project.settings = {"dlq_recorder_dir": recorder_dir, "dlq_worker_metrics": True}
        project.environ["PROJ_METRICS"] = str(tmp_path / "port")
        project.app.conf.dlq_recorder_dir = recorder_dir
        check_that_only_stated_tasks_vanish(project, disk, pool)
    finally:
        disk.close()


def full_disk(directory: Path) -> Disk:
    """A small disk; the test is skipped if this user cannot make one."""
    try:
        return Disk(directory)
    except ServerError as error:
        pytest.skip(str(error))


def check_that_only_stated_tasks_vanish(project: Project, disk: Disk, pool: str) -> None:
    """Half of the workers are killed while they are not covered, half when they are covered again."""
    chance = random.Random(pool)
    project.dlq.store.check_schema()
    send_noted(project, KILLS * TASKS_OF_A_FULL_DISK, chance, body_s=LONG_BODY_S)
    kills, uncovered, unrecorded = [], [], 0
    for number in range(KILLS):
        wait_for_recovery(project)
        disk.fill()
        began, said = time.time(), texts(project, UNCOVERED)
        with worker_with_a_run(project, *POOLS[pool], kills=kills):
            wait_for("messages without a copy", lambda: count_unrecorded(project))
            if number % 2:
                again = texts(project, COVERED_AGAIN)
                disk.clear()
                wait_for("room again", lambda n=again: texts(project, COVERED_AGAIN) > n)
            until = time.time()
            time.sleep(chance.uniform(0, LIFE_S))
            unrecorded += count_unrecorded(project)
        uncovered.append((began, until if number % 2 else kills[-1].over_at))
        assert texts(project, UNCOVERED) == said + 1, "said once"
        (project.directory / "port").unlink()
        disk.clear()

    wait_for_recovery(project)
    with worker(project, *POOLS[pool]) as last:
        wait_for_all(project)
        last.terminate()
        last.wait(60)

    account = account_of(project, kills)
    print(f"\n{pool}, the disk full: {account}; {unrecorded} not covered")
    assert len(account.vanished) <= unrecorded
    for number in account.vanished:
        [at] = account.notes.began[number]
        assert any(start <= at <= end for start, end in uncovered), f"{number} was covered"
    assert not account.doubled
    assert {n: s for n, s in account.needless.items() if s > NOTICED_S} == {}
    assert not directories(project)


def texts(project: Project, text: str) -> int:
    """How often the workers have logged ``text``."""
    log = log_of(project)
    return log.read_text(errors="replace").count(text) if log.exists() else 0


def count_unrecorded(project: Project) -> int:
    """The messages that the living worker could not record; 0 before it serves its metrics."""
    path = project.directory / "port"
    if not path.exists() or not path.read_text():
        return 0
    with urlopen(f"http://127.0.0.1:{path.read_text()}/metrics", timeout=60) as response:
        text = response.read().decode()
    [count] = re.findall(r"^celery_dlq_worker_unrecorded_total (\S+)$", text, re.MULTILINE)
    return int(float(count))
