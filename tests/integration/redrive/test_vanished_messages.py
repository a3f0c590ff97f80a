"""Messages of redrives that vanish from Redis are sent again, and every letter is resolved without a person.

``CELERY_DLQ_REDRIVEN_KILLS`` and ``CELERY_DLQ_REDRIVEN_LETTERS`` set the numbers of the kill test
(``make kills`` sets more).
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import defaultdict
from functools import partial

import pytest
from killed import worker
from project import wait_for
from redis import Redis
from support.factories import envelope, letter

from celery_dlq import DLQTask, Filter
from celery_dlq.model.operation import Guard, OperationState, Orders
from celery_dlq.model.states import State

KILLS = int(os.environ.get("CELERY_DLQ_REDRIVEN_KILLS", "5"))
LETTERS = int(os.environ.get("CELERY_DLQ_REDRIVEN_LETTERS", "600"))

#: Seconds after which Redis gives unacknowledged messages back, in the kill test.
VISIBLE_AFTER_S = 3
#: Seconds after which a message has vanished, where Redis has none to give back.
VANISHED_AFTER_S = 5
#: The longest body, in seconds, and the most runs of a worker before it is killed.
BODY_S, RUNS = 0.02, max(2, LETTERS // KILLS)
PATIENCE_S = 90.0 + LETTERS / 20

pytestmark = [
    pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(300 + 15 * KILLS + LETTERS / 10),
]  # fmt: skip


@pytest.fixture
def project(make_project, redis_url, postgres_url):
    project = make_project(f"{redis_url}/9", postgres_url, module="proj_vanishing")
    project.environ["PROJ_VANISHED_AFTER_S"] = str(VANISHED_AFTER_S)
    # The kills are not the fault of the messages.
    project.settings["dlq_max_deliveries"] = 1_000
    project.app.task(name="proj.runs", base=DLQTask, shared=False)(_not_here)
    project.dlq.store.check_schema()
    return project


def _not_here(number, seconds=0.0):
    raise AssertionError("runs in a worker only")


@pytest.fixture
def redis(redis_url):
    with Redis.from_url(f"{redis_url}/9") as client:
        yield client


def fill(project, number: int, seconds: float = 0.0) -> list[str]:
    """Save ``number`` dead letters; returns their ids."""
    chance, made = random.Random(number), []
    for one in range(number):
        task_id = f"{project.queue}-{one}"
        arguments = [[one, chance.uniform(0, seconds)], {}, {}]
        sent = envelope(
            task_id,
            body=json.dumps(arguments).encode(),
            headers={"id": task_id, "task": "proj.runs", "retries": 0, "lang": "py"},
            routing_key=project.queue,
            queue=project.queue,
        )
        made.append(letter(task_id, task="proj.runs", envelope=sent))
    for start in range(0, number, 500):
        project.dlq.store.letters.save(made[start : start + 500])
    return [one.task_id for one in made]


def redrive(project) -> str:
    """Send all letters; returns the id of the operation."""
    orders = Orders(guard=Guard(enabled=False))
    operation = project.dlq.redrives.start(Filter(queue=project.queue), who="tester", orders=orders)
    assert operation.state is OperationState.DONE
    return operation.id


def runs(project) -> dict[int, list[str]]:
    """The copies under which the body of each letter has run."""
    found = defaultdict(list)
    for line in project.lines("runs"):
        number, copy = line.split()
        found[int(number)].append(copy)
    return found


def number_of_runs(project) -> int:
    path = project.directory / "runs"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def has_run_more(project, before: int) -> bool:
    return number_of_runs(project) > before


def resolved(project) -> int:
    return project.count(states=frozenset({State.RESOLVED}))


def wait_until_resolved(project, number: int) -> None:
    wait_for("all to be resolved", lambda: resolved(project) == number, PATIENCE_S)


def test_a_message_that_vanishes_before_a_worker_has_it_is_sent_again(project, redis):
    ids = fill(project, 3)
    operation_id = redrive(project)
    vanished = json.loads(redis.rpop(project.queue))["headers"]["id"]
    with project.worker("-c", "1"):
        wait_until_resolved(project, 3)
    assert sorted(map(len, runs(project).values())) == [1, 1, 1]
    again = {one: project.dlq.store.sendings.of_letter(one)[0].sent_again for one in ids}
    assert again == {one: int(one == vanished) for one in ids}
    assert project.dlq.redrives.get(operation_id).sent_again == 1
    shown = project.run("dlq", "show", vanished).stdout
    assert "its message had vanished and was sent again, 1 time" in " ".join(shown.split())


def test_so_is_one_that_vanishes_after_a_worker_has_accepted_it(project, redis):
    """The worker is killed, and so is the next one, while it takes the message that was given back."""
    (task_id,) = fill(project, 1)
    hold = project.directory / "hold"
    hold.touch()
    redrive(project)
    with worker(project, "-c", "1"):
        wait_for("it to run", partial(has_run_more, project, 0))
    redis.delete(f"{project.queue}-unacked", f"{project.queue}-unacked-index")
    hold.unlink()
    with project.worker("-c", "1"):
        wait_until_resolved(project, 1)
    [copies] = runs(project).values()
    assert (len(copies), len(set(copies))) == (2, 1)
    assert project.dlq.store.sendings.of_letter(task_id)[0].sent_again == 1


def test_a_copy_that_was_sent_while_the_first_one_still_waits_does_not_run(project, redis):
    fill(project, 1)
    redrive(project)
    first = redis.rpop(project.queue)
    hold = project.directory / "hold"
    hold.touch()
    with project.worker("-c", "2"):
        wait_for("the copy to run", partial(has_run_more, project, 0))
        redis.lpush(project.queue, first)
        wait_for("the first one to be dropped", lambda: is_dropped(project))
        hold.unlink()
        wait_until_resolved(project, 1)
    assert list(map(len, runs(project).values())) == [1]


def is_dropped(project) -> bool:
    return "was sent twice by its redrive" in project.logged()


@pytest.mark.nightly
def test_workers_are_killed_again_and_again_and_every_letter_is_resolved(project):
    del project.environ["PROJ_VANISHED_AFTER_S"]
    # A worker that is killed while it looks for messages to give back must not stop the others for long.
    transport = {"visibility_timeout": VISIBLE_AFTER_S, "unacked_mutex_expire": 1}
    project.environ["PROJ_TRANSPORT"] = json.dumps(transport)
    fill(project, LETTERS, BODY_S)
    chance = random.Random(LETTERS)
    sending = threading.Thread(target=redrive, args=(project,))
    # This worker reads no messages, and lives: it does the upkeep while the others are killed.
    with project.worker("-c", "1", "-Q", f"{project.queue}-idle"):
        sending.start()
        killed = 0
        while killed < KILLS and resolved(project) < LETTERS:
            most = number_of_runs(project) + chance.randrange(RUNS)
            with worker(project, "-c", "4"):
                wait_for(
                    "tasks to run",
                    lambda: has_run_more(project, most) or resolved(project) == LETTERS,  # noqa: B023
                )
                # The next message may be taken at any moment.
                time.sleep(chance.uniform(0, BODY_S))
            killed += 1
        with worker(project, "-c", "4"):
            wait_until_resolved(project, LETTERS)
    sending.join(PATIENCE_S)
    found = runs(project)
    (operation,) = project.dlq.redrives.find()
    twice = sum(len(copies) > 1 for copies in found.values())
    print(
        f"\n{killed} kills of workers, {LETTERS} letters: {resolved(project)} resolved, "
        f"{operation.sent_again} messages sent again, {twice} bodies ran more than once "
        f"under one copy, {sum(len(set(copies)) > 1 for copies in found.values())} under two"
    )
    assert {number: copies for number, copies in found.items() if len(set(copies)) > 1} == {}
    assert len(found) == LETTERS
    assert operation.counts.succeeded == LETTERS
    assert killed > KILLS / 2, "it was done before workers could be killed"
