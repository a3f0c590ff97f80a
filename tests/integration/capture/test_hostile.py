"""Hundreds of generated hostile messages: each ends in one place, and the worker outlives them all."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

import pytest
from hostile_messages import Hostile, messages, number_of, send
from project import Project, wait_for

from celery_dlq import DeadLetter, Filter, Reason
from celery_dlq.model.states import State

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(1200)]

COUNT = int(os.environ.get("CELERY_DLQ_HOSTILE", "100"))
SEED = int(os.environ.get("CELERY_DLQ_HOSTILE_SEED", "14"))

POOLS = {
    "prefork": ("-P", "prefork", "-c", "2"),
    "threads": ("-P", "threads", "-c", "2"),
    "solo": ("-P", "solo"),
    "gevent": ("-P", "gevent", "-c", "2"),
}
PLACES = [("redis", pool) for pool in POOLS] + [("rabbitmq", "prefork")]

#: Celery's line, with the id, about a message that expired.
_DROPPED = re.compile(r"Discarding revoked task: \S+\[(.+?)\]")


@dataclass
class Ends:
    """Where the messages of a project have ended, by their numbers."""

    project: Project
    sent: list[Hostile]
    letters: dict[str, DeadLetter] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    _read: set[str] = field(default_factory=set)

    def look(self) -> Ends:
        for found in self._dead():
            if found.task_id not in self._read:
                self._read.add(found.task_id)
                letter = self.project.letter(found.task_id)
                self.letters[number_of(letter)] = letter
        # A body that ran, and whose callbacks could not be sent, for one, ends as a letter.
        unstored = {n for n, one in self.letters.items() if one.reason is Reason.UNSTORED}
        self.done = set(self.project.lines("done")) - unstored
        ids = set(_DROPPED.findall(self.project.logged()))
        self.dropped = {one.number for one in self.sent if id_of(one) in ids}
        return self

    def missing(self) -> dict[str, str]:
        ended = self.letters.keys() | self.done | self.dropped
        return {one.number: one.why for one in self.sent if one.number not in ended}

    def _dead(self):
        after = None
        while True:
            wanted = Filter(queue=self.project.queue, states=frozenset({State.DEAD}))
            page = self.project.dlq.store.letters.find(wanted, limit=500, after=after)
            yield from page.letters
            if page.next is None:
                return
            after = page.next


def id_of(one: Hostile) -> str:
    given = (one.headers or {}).get("id")
    return str(given) if isinstance(given, (str, int)) else ""


@pytest.mark.parametrize(("broker", "pool"), PLACES)
def test_each_ends_in_one_place_and_the_worker_lives(
    broker, pool, make_project, redis_url, request
):
    url = f"{redis_url}/9" if broker == "redis" else request.getfixturevalue("rabbitmq_url")
    settings = {"worker_prefetch_multiplier": 16, "dlq_max_attempts": 2}
    project = make_project(url, module="proj_hostile", settings=settings)
    with project.worker(*POOLS[pool]) as worker:
        sent = send(project.app, project.queue, messages(SEED, COUNT, tables=broker != "redis"))
        ends = Ends(project, sent)

        def over():
            return worker.poll() is not None or not ends.look().missing()

        try:
            wait_for("all to end", over, patience_s=30.0 + COUNT / 5)
        except AssertionError:
            raise AssertionError(f"these did not end: {ends.missing()}") from None
        assert worker.poll() is None, f"the worker died; these did not end: {ends.missing()}"
        [said] = project.app.control.inspect(project.nodes, timeout=10).stats().values()
        assert said["pid"] == worker.pid, "the same process"
    ends.look()
    letters = set(ends.letters)
    print(
        f"{broker} {pool}: {len(ends.done)} done + {len(letters)} letters + {len(ends.dropped)} dropped"
    )
    both = (ends.done & letters) | (ends.done & ends.dropped) | (letters & ends.dropped)
    assert {one.number: one.why for one in sent if one.number in both} == {}
    assert len(ends.done) + len(letters) + len(ends.dropped) == len(sent) == COUNT


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_one_that_cannot_be_pickled_and_came_back_delays_no_other(
    broker, make_project, redis_url, request
):
    """Such a message comes back if a worker without a dead-letter queue has died of it."""
    url = f"{redis_url}/9" if broker == "redis" else request.getfixturevalue("rabbitmq_url")
    project = make_project(url, module="proj_hostile")
    deep = {task: [too_deep(f"deep-{task}", task)] for task in ("early", "late")}
    declare(project)
    for one in deep.values():
        send(project.app, project.queue, iter(one))
        if broker == "rabbitmq":
            give_back(project)
    with project.worker("-P", "prefork", "-c", "1") as worker:
        wait_for("both letters", lambda: project.count() == 2)
        project.app.send_task("proj_hostile.late", [1])
        wait_for("the task after them", (project.directory / "done").exists, patience_s=20.0)
        assert worker.poll() is None
    for task, [one] in deep.items():
        letter = project.letter(f"deep-{task}")
        assert (letter.reason, letter.explanation.rule) == (
            Reason.MALFORMED,
            "message.pool_refused",
        )
        assert letter.envelope.body == one.body


def too_deep(task_id, task):
    body = b"[[" + b"[" * 700 + b"]" * 700 + b"], {}, {}]"
    headers = {"task": f"proj_hostile.{task}", "id": task_id, "retries": 0, "lang": "py"}
    return Hostile(number="0", why="deep", body=body, headers=headers, redelivered=True)


def declare(project):
    """Declare the queue as its worker does."""
    with project.app.connection_for_write() as connection:
        project.app.amqp.queues[project.queue](connection.default_channel).declare()


def give_back(project):
    """Take the message off its queue as a worker does, and give it back."""
    with project.app.connection_for_write() as connection:
        queue = project.app.amqp.queues[project.queue](connection.default_channel)
        message = wait_for("the message", queue.get)
        message.requeue()
