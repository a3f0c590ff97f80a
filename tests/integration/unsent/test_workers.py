"""Messages that could not be sent are sent by workers: each runs once, in its place in a canvas. A worker
keeps the messages that its tasks could not send."""

from __future__ import annotations

import itertools
import subprocess
from collections import Counter
from datetime import timedelta

import pytest
from celery import chain, chord, group
from kombu import Connection
from kombu.exceptions import ChannelError
from project import wait_for

from celery_dlq import DLQTask
from celery_dlq.model.states import State
from celery_dlq.outbox import sender as outbox

pytestmark = [pytest.mark.slow, pytest.mark.service]

HALF = timedelta(seconds=0.6)


def messages(project):
    with Connection(project.broker) as connection:
        try:
            return connection.default_channel.queue_declare(project.queue, passive=True)[1]
        except ChannelError:  # on Redis there is no empty queue
            return 0


@pytest.fixture
def cut_after(monkeypatch):
    """Cuts a proxy after this many messages of this process."""

    def cut_after(number, proxy):
        count, transmit = itertools.count(), outbox.Outbox.transmit

        def transmitting(*arguments):
            if next(count) == number:
                proxy.cut()
            return transmit(*arguments)

        monkeypatch.setattr(outbox.Outbox, "transmit", transmitting)

    return cut_after


def test_a_canvas_of_which_a_part_was_sent(
    project, make_proxy, make_sender, redis_url, cut_after, runs
):
    project.backend = project.app.conf.result_backend = f"{redis_url}/9"
    proxy, url = make_proxy(project.broker)
    sender = make_sender(project, url, result_backend=project.backend)
    task = {
        name: sender.app.task(base=DLQTask, name=f"proj.{name}", shared=False)(_not_here)
        for name in ("succeed", "total", "add")
    }
    cut_after(20, proxy)
    members = group(sender.task.s(number, 0.0, 0) for number in range(40)).apply_async()
    proxy.restore()
    sender.dlq.sending.circuit._try_at = 0.0
    cut_after(5, proxy)
    total = chord([task["succeed"].s(number) for number in range(10)])(task["total"].s())
    sums = chain(task["add"].s(1, 2), task["add"].s(3), task["add"].s(4)).apply_async()
    assert len(sender.letters()) == 20 + 5 + 1
    with project.worker("-c", "2"):
        runs(*range(40))
        assert members.get(timeout=60) == list(range(40))
        assert (total.get(timeout=60), sums.get(timeout=60)) == (45, 10)
        wait_for("all letters to be settled", lambda: project.parked() == 0)
    assert project.fixed.with_name("count-total").read_text() == ".", "the chord ran once"


def test_what_tasks_send_while_the_broker_is_away(project, make_proxy, make_sender):
    direct, (proxy, project.broker) = project.broker, make_proxy(project.broker)
    project.module = "proj_unsent"
    project.settings = {"dlq_unsent": "store", "dlq_unsent_after": 0.5}
    sender = make_sender(project, direct)
    sender.has_own_address = False
    ways = ["fails", "retries", "is replaced", "sends"]
    again = {
        "fails": "{} 1",
        "retries": "{} 1",
        "is replaced": "{}, replaced 0",
        "sends": "{}, sent 0",
    }
    linked = sender.app.signature("proj.waits", (0.0, 0))
    with project.worker("-c", "7"):
        project.broker = direct
        for way in ways:
            sender.app.send_task("proj.sends", (way, way))
        for way in ways[:2]:
            sender.app.send_task("proj.sends_late", (f"{way} late", way))
        sender.app.send_task("proj.sends", ("calls back", "ends"), link=linked)
        wait_for("all to run", lambda: len(project.lines("waiting")) == 7)
        proxy.cut()
        project.fixed.with_name("continue").touch()
        wait_for("their messages to be kept", lambda: len(sender.letters()) == 7)
        proxy.restore()
        expected = [again[way].format(way) for way in ways]
        expected += [f"{way} late 1" for way in ways[:2]]
        expected += ["calls back, linked 0"]
        wait_for("all to run again", lambda: set(expected) <= set(project.lines("runs")))
        wait_for("all letters to be settled", lambda: project.parked() == 0)
    first = [*(f"{way} 0" for way in ways), *(f"{way} late 0" for way in ways[:2]), "calls back 0"]
    assert Counter(project.lines("runs")) == Counter([*first, *expected])
    assert project.count(states=frozenset(State)) == 0, "nothing was rejected"


@pytest.mark.nightly
@pytest.mark.parametrize("kill_at", ["taken", "publishing", "published", "marked"])
def test_a_worker_that_is_killed_while_it_sends_them(
    project, make_proxy, make_sender, runs, kill_at
):
    proxy, url = make_proxy(project.broker)
    sender, numbers = make_sender(project, url), range(20)
    proxy.cut()
    for number in numbers:
        sender.send(number)
    project.environ.update(PROJ_KILL_AT=kill_at, PROJ_HALF="10")
    process, log = project.start_worker("-c", "1", "-Q", "dlq-test-idle")
    assert process.wait(timeout=60) == -9, log.read_text()
    project.environ.update(PROJ_KILL_AT="")
    with project.worker("-c", "2"):
        runs(*numbers)
        wait_for("all letters to be settled", lambda: project.parked() == 0)
        wait_for("all copies to be taken", lambda: messages(project) == 0)
    runs(*numbers)


@pytest.mark.nightly
def test_a_message_that_waited_is_late_or_expired(project, make_proxy, make_sender, runs):
    proxy, url = make_proxy(project.broker)
    sender = make_sender(project, url)
    proxy.cut()
    expired = sender.send(1, expires=0.5)
    sender.send(2, countdown=0.5)
    sender.send(3, compression="gzip", priority=5, expires=3_600)
    sender.app.send_task("proj.waits", (4, 0.0, 0))
    wait_for("its time to pass", lambda: sender.dlq.store.now() > sender.letters()[0].due_at + HALF)
    with project.worker("-c", "2"):
        runs(2, 3, 4)
        wait_for("all letters to be settled", lambda: project.parked() == 0)
        wait_for(
            "the expired one to be discarded",
            lambda: f"Discarding revoked task: proj.waits[{expired.id}]" in project.logged(),
        )
    runs(2, 3, 4)


@pytest.mark.nightly
def test_a_task_that_beat_cannot_send_runs_once(project, make_proxy, make_sender):
    direct, (proxy, through) = project.broker, make_proxy(project.broker)
    project.settings = {
        "dlq_unsent": "store",
        "dlq_unsent_after": 0.5,
        "beat_max_loop_interval": 0.5,
        "beat_schedule": {"one": {"task": "proj.waits", "schedule": 0.5, "args": [1, 0.0, 0]}},
    }
    place = project.dlq.hold.place
    (project.directory / "proj_beat.py").write_text(
        "from dataclasses import replace\n"
        "from proj_parking import app, dlq\n"
        f"dlq.hold = replace(dlq.hold, place={place!r})\n"
    )
    project.module = "proj_beat"
    project.broker = through
    with (project.directory / "beat.log").open("wb") as log:
        beat = subprocess.Popen(
            project.command("beat", "-l", "INFO", "-s", str(project.directory / "schedule")),
            env=project.environment, cwd=project.directory, stdout=log, stderr=log,
        )  # fmt: skip
    project.broker = direct
    wait_for("messages", lambda: messages(project) >= 2)
    proxy.cut()
    wait_for("letters", lambda: project.parked() >= 3)
    before = messages(project)
    proxy.restore()
    wait_for("messages again", lambda: messages(project) > before)
    beat.terminate()
    beat.wait(timeout=60)
    due = messages(project) + project.parked()
    with project.worker("-c", "1"):
        wait_for("all to run", lambda: len(project.lines("runs")) >= due)
        wait_for("all letters to be settled", lambda: project.parked() == messages(project) == 0)
    said = (project.directory / "beat.log").read_text()
    assert len(project.lines("runs")) == due == said.count("Sending due task one")


def _not_here(*args, **kwargs):
    raise AssertionError("runs in a worker only")
