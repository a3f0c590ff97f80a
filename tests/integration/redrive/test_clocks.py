"""Redrives from machines whose clocks are wrong: commands in processes whose clock is off, on a
PostgreSQL whose clock is right."""

import json
import re
import subprocess
import sys
from collections import Counter
from datetime import datetime, timedelta, timezone

import pytest
from support.factories import envelope, letter

from celery_dlq.model.states import State

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.service]

#: Celery's command line, in a process whose clock is ahead; its first argument says by how many seconds.
CELERY = """
import sys, time, time_machine
time_machine.travel(time.time() + float(sys.argv.pop(1))).start()
from celery.__main__ import main
main()
"""


class Machine:
    """Where a project's commands are run, with a clock that is this many minutes ahead."""

    def __init__(self, project, minutes):
        self._project, self._ahead_s = project, 60 * minutes

    def begin(self, *words):
        command = [sys.executable, "-c", CELERY, str(self._ahead_s), "-A", self._project.module]
        return subprocess.Popen(
            [*command, "dlq", *words],
            env=self._project.environment, cwd=self._project.directory, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip


@pytest.fixture
def shop(make_project, redis_url, postgres_url):
    return make_project(f"{redis_url}/9", postgres_url)


@pytest.fixture
def fill(shop):
    """Save letters that failed this long ago; returns their ids."""

    def fill(count, ago):
        failed_at = datetime.now(timezone.utc) - ago
        ids = [f"{shop.queue}-{number}" for number in range(count)]
        shop.dlq.store.letters.save([made(shop.queue, task_id, failed_at) for task_id in ids])
        return ids

    return fill


def made(queue, task_id, failed_at):
    times = {"first_failed_at": failed_at, "last_failed_at": failed_at}
    headers = {**envelope(task_id).headers, "task": "proj.succeed"}
    message = envelope(
        task_id, body=b"[[], {}, {}]", headers=headers, exchange="", routing_key=queue, queue=queue
    )
    return letter(task_id, task="proj.succeed", attempts=(), envelope=message, **times)


def sent(shop):
    """How often each letter is in the queue."""
    with shop.app.connection_for_read() as connection:
        messages = connection.default_channel.client.lrange(shop.queue, 0, -1)
    return Counter(json.loads(message)["headers"]["id"] for message in messages)


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_letter_that_has_just_failed_is_sent_whatever_the_clock_says(shop, fill, minutes):
    ids = fill(30, timedelta(seconds=1))
    redrive = Machine(shop, minutes).begin("redrive", "--all", "--yes", "--no-guard")
    stdout, stderr = redrive.communicate(timeout=60)
    assert redrive.returncode == 0, stderr
    assert re.search(r"To send +30 dead letters", stdout)
    assert "Sent 30 of 30 dead letters" in stdout
    assert sent(shop) == dict.fromkeys(ids, 1)


def test_two_with_different_clocks_lose_no_letter_and_send_none_twice(shop, fill):
    ids = fill(200, timedelta(hours=1))
    # At this rate one alone takes longer than the other one needs to start.
    orders = ("redrive", "--all", "--yes", "--no-guard", "--rate", "30/s")
    both = [Machine(shop, minutes).begin(*orders) for minutes in (-10, 10)]
    said = [redrive.communicate(timeout=60) for redrive in both]
    assert sent(shop) == dict.fromkeys(ids, 1), said
    assert {redrive.returncode for redrive in both} <= {0, 4}, said
    operations = shop.dlq.redrives.find()
    assert sum(one.counts.out for one in operations) == 200
    assert shop.count(states=frozenset({State.REDRIVEN})) == 200
    assert all(one.counts.out for one in operations), "they did not run at the same time"


def test_doctor_says_how_far_the_clock_is_off(shop):
    stdout, stderr = Machine(shop, -10).begin("doctor").communicate(timeout=60)
    warning = r"the clock of this machine is (59|60|61)\d seconds behind the database's"
    assert re.search(warning, " ".join(stdout.split())), stdout + stderr
