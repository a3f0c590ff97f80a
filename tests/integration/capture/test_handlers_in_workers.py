"""Repair handlers in real workers: killed, too slow, called twice, and all at once."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
from project import wait_for
from support.factories import letter
from support.workers.processes import kill_with_its_pool

from celery_dlq import Filter
from celery_dlq.model.handling import HANDLE_TASK, TRIES, HandlingState
from celery_dlq.model.states import State

pytestmark = [pytest.mark.slow, pytest.mark.service]

GROUP = "9c1e0000deadbeef"


CLOSED = frozenset({State.DISCARDED})
ALL_CLOSED = Filter(states=CLOSED)


@pytest.fixture
def make(make_project, urls_of):
    made = []

    def make(pair):
        broker, store = urls_of(pair)
        project = make_project(broker, store, module="proj_handlers")
        project.settings["dlq_handler_queue"] = f"{project.queue}-handlers"
        project.dlq.store.check_schema()
        made.append(project)
        return project

    yield make
    for project in made:
        with project.app.connection_for_write() as connection:
            connection.default_channel.queue_delete(f"{project.queue}-handlers")


@pytest.fixture
def project(make):
    return make("redis-sqlite")


def worker(project, *options):
    return project.worker("-Q", f"{project.queue},{project.queue}-handlers", *options)


@contextlib.contextmanager
def killed_worker(project):
    """A worker that is killed at the end, together with its children."""
    words = ("-Q", f"{project.queue},{project.queue}-handlers", "-c", "2")
    with project.worker(*words) as process:
        yield process
        kill_with_its_pool(process)


def dead(project, task, count=1):
    """Store dead letters of a task; returns their ids."""
    letters = [letter(f"{task}-{number:05}", task=f"proj.{task}") for number in range(count)]
    for first in range(0, count, 1_000):
        project.dlq.store.letters.save(letters[first : first + 1_000])
    return [one.task_id for one in letters]


def handlings(project, **wanted):
    return project.dlq.store.automations.find(limit=500, **wanted).rows


def wait_until(project, state, count=1):
    found = wait_for(
        f"{count} handlings to be {state.value}",
        lambda: len(rows := handlings(project, states=frozenset({state}))) == count and rows,
    )
    return list(found)


def said(project, name):
    return Counter(project.lines(name))


@pytest.mark.parametrize("pair", ["redis-sqlite", "rabbitmq-postgres"])
def test_letters_are_repaired_sent_back_and_succeed(make, pair):
    project = make(pair)
    with worker(project, "-c", "2"):
        ids = [project.send("pays", number=number, currency="EUX") for number in range(20)]
        for task_id in ids:
            project.wait_for_letter(task_id, State.RESOLVED)
    assert said(project, "called") == Counter(ids)
    assert said(project, "paid")["3 EUR"] == 1
    found = project.letter(ids[3])
    assert found.kwargs == {"number": 3, "currency": "EUR"}
    [change] = project.dlq.store.edits.of_letter(ids[3])
    assert change.who == "auto:in_euros"
    assert "+ kwargs.currency" in change.diff
    operations = project.dlq.store.operations.find()
    assert {one.who for one in operations} == {"auto:in_euros"}
    assert sum(one.counts.succeeded for one in operations) == 20


@pytest.mark.parametrize("pair", ["redis-sqlite", "rabbitmq-mysql"])
def test_two_workers_make_one_ticket_of_10_000_letters_of_one_group(make, pair):
    project = make(pair)
    dead(project, "many", 10_000)
    with worker(project, "-c", "4"), worker(project, "-c", "4"):
        wait_until(project, HandlingState.DONE)
        # Until it has looked at all letters again, and at those of another group that came later.
        project.dlq.store.letters.save(
            [letter("other", task="proj.many", fingerprint="aaaa0000deadbeef")]
        )
        wait_until(project, HandlingState.DONE, 2)
    assert len(handlings(project)) == 2
    assert project.fixed.with_name("count-tickets").read_text() == ".."
    [ticket] = project.dlq.store.tickets.of_groups([GROUP])[GROUP]
    assert ticket.url == "https://tickets/1"
    assert project.dlq.store.counts.letters(Filter(states=frozenset({State.DEAD}))) == 10_001


def test_a_handler_whose_worker_is_killed_is_called_again(project):
    [task_id] = dead(project, "dies_once")
    with worker(project, "-c", "1"):
        project.wait_for_letter(task_id, State.DISCARDED)
    [row] = handlings(project)
    assert (row.state, row.tries) == (HandlingState.DONE, 2)
    assert set(said(project, "imported")) == {"True"}, "a time limit would cut the import off"


@pytest.mark.parametrize("pair", ["redis-postgres", "rabbitmq-mysql"])
def test_workers_that_are_killed_lose_no_letter_and_repeat_no_verdict(make, pair):
    """Each is killed with its children, whatever it was doing: choosing, sending, calling or ending."""
    project = make(pair)
    ids = dead(project, "closes", 300)
    for share in (60, 150):
        with killed_worker(project):
            wait_for(
                f"{share} letters to be closed",
                lambda share=share: project.dlq.store.counts.letters(ALL_CLOSED) >= share,
            )
    with worker(project, "-c", "2"):
        wait_for("all to be closed", lambda: project.dlq.store.counts.letters(ALL_CLOSED) == 300)
        wait_until(project, HandlingState.DONE, 300)
    assert set(said(project, "called")) == set(ids)
    acts = project.dlq.store.audit.find(limit=1_000, act="discard").rows
    assert sorted(act.detail["filter"]["ids"][0] for act in acts) == ids
    assert {act.who for act in acts} == {"auto:closes"}


def test_a_handler_that_kills_each_worker_is_given_up_and_makes_no_letters(project):
    ids = dead(project, "dies", 2)
    with worker(project, "-c", "2"):
        rows = wait_until(project, HandlingState.FAILED, 2)
    assert said(project, "called") == dict.fromkeys(ids, TRIES)
    assert all("its worker was killed" in row.error for row in rows)
    assert project.dlq.store.counts.letters(Filter(states=frozenset(State))) == 2


def test_a_handler_that_takes_too_long_is_stopped(project):
    dead(project, "sleeps")
    with worker(project, "-c", "1"):
        [row] = wait_until(project, HandlingState.FAILED)
    assert (row.tries, row.error) == (TRIES, "it did not end within its timeout of 1 seconds")


@pytest.mark.nightly
def test_a_handler_that_ignores_its_timeout_is_killed_and_given_up(project):
    [task_id] = dead(project, "hangs")
    with worker(project, "-c", "1"):
        [row] = wait_until(project, HandlingState.FAILED)
    assert said(project, "called") == {task_id: TRIES}
    assert said(project, "limited")[task_id] >= TRIES
    assert "did not end within its timeout" in row.error
    assert project.dlq.store.counts.letters(Filter(states=frozenset(State))) == 1


def test_a_handler_that_raises_for_each_letter_makes_no_letters(project):
    dead(project, "raises", 30)
    with worker(project, "-c", "2"):
        rows = wait_until(project, HandlingState.FAILED, 30)
    assert {(row.tries, row.error) for row in rows} == {(TRIES, "it raised KeyError: 'a bug'")}
    assert project.dlq.store.counts.letters(Filter(states=frozenset(State))) == 30


def test_a_message_that_is_delivered_many_times_calls_the_handler_once(project):
    [task_id] = dead(project, "waits_for_it")
    with worker(project, "-c", "4"):
        [row] = wait_until(project, HandlingState.RUNNING)
        copies = [
            project.app.send_task(HANDLE_TASK, (row.id,), queue=f"{project.queue}-handlers").id
            for _ in range(20)
        ]
        wait_for(
            "the copies to have been run",
            lambda: all(f"[{copy}] succeeded" in project.logged() for copy in copies),
        )
        project.fixed.touch()
        project.wait_for_letter(task_id, State.DISCARDED)
    assert said(project, "called") == {task_id: 1}


def test_a_letter_that_a_person_closes_while_the_handler_runs_stays_as_it_is(project):
    [task_id] = dead(project, "waits_for_it")
    with worker(project, "-c", "1"):
        wait_until(project, HandlingState.RUNNING)
        store = project.dlq.store
        store.closing.discard(Filter(ids=(task_id,)), who="ann", why="mine", now=store.now())
        project.fixed.touch()
        wait_until(project, HandlingState.STALE)
    found = project.letter(task_id)
    assert (found.closed_by, found.closed_reason) == ("ann", "mine")


def test_a_worker_without_the_handlers_makes_no_letters_of_their_messages(project):
    dead(project, "waits_for_it")
    project.fixed.touch()
    with project.worker("-Q", project.queue):
        [row] = wait_until(project, HandlingState.QUEUED)
    project.module = "proj"
    with worker(project):
        sent = project.app.send_task(HANDLE_TASK, (row.id,), queue=f"{project.queue}-handlers").id
        wait_for(
            "the worker to refuse it",
            lambda: sent in project.logged(),
        )
    assert project.dlq.store.counts.letters(Filter(states=frozenset(State))) == 1
