"""The flight recorder in workers that are stopped, that replace their pool processes, that lose their broker,
or that share a name: each message in it comes to its end, and no letter is made of one that has ended."""

from __future__ import annotations

import random
import signal
import time
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from celery import signature
from celery.canvas import xstarmap
from celery.states import SUCCESS
from killed import (
    POOLS,
    kill,
    letters_of,
    read_notes,
    send_noted,
    wait_for_recovery,
    worker,
)
from matrix.mode import CELERY, minor
from project import Project, wait_for
from proxy import Proxy

from celery_dlq import Filter
from celery_dlq.model.states import Reason, State
from celery_dlq.recorder.files import FilesState
from celery_dlq.upkeep.recovery import Recovered

pytestmark = [pytest.mark.slow, pytest.mark.service]

#: Workers that are shut down without waiting for their tasks.
COLD_SHUTDOWNS = 8

#: Seconds that a soft shutdown gives to tasks.
SOFT_S = 3.0


@pytest.fixture
def project(make_project, redis_url):
    return make_project(f"{redis_url}/9", backend=f"{redis_url}/9", module="proj_recorded")


@pytest.fixture(params=["redis-sqlite", "rabbitmq-sqlite"])
def behind_proxy(request, make_project, urls_of):
    """A project whose workers reach the broker through a proxy, and the proxy."""
    project = make_project(*urls_of(request.param), module="proj_recorded")
    parts = urlsplit(project.broker)
    proxy = Proxy(parts.hostname, parts.port)
    through = parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{proxy.port}"))
    project.environ["PROJ_BROKER"] = through.geturl()
    yield project, proxy
    proxy.close()


def running(project: Project) -> int:
    """The messages in the files of living workers."""
    return sum(
        left.messages for left in project.dlq.recorder.look() if left.state is FilesState.IN_USE
    )


def forgotten(project: Project) -> int:
    """The messages in these files that the broker has certainly forgotten; the workers look once a second."""
    return sum(
        left.forgotten for left in project.dlq.recorder.look() if left.state is FilesState.IN_USE
    )


def wait_for_running(project: Project, messages: int) -> None:
    wait_for(f"{messages} messages in the files", lambda: running(project) == messages)


def reasons(project: Project) -> dict[str, Reason]:
    """The reason of each letter, by the id of its task; each has been made once."""
    letters = letters_of(project)
    assert all(letter.attempt_count == 1 and letter.state is State.DEAD for letter in letters)
    return {letter.task_id: letter.reason for letter in letters}


def check_that_nothing_is_left(project: Project) -> None:
    """The worker has left no messages, so no letter is made. On Redis, its note that it waits for a message
    stays until its pool has ended, and a worker with the same address of the broker recovers it."""
    assert sum(one.letters for one in project.dlq.recorder.recover()) == 0
    assert list(project.dlq.recorder_dir.glob("*/*.rec")) == []


@contextmanager
def released(project: Project, *names: str):
    """Within this block, the tasks that wait for these names continue."""
    paths = [project.directory / name for name in names]
    for path in paths:
        path.touch()
    yield
    for path in paths:
        path.unlink()


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo", "gevent"])
def test_a_warm_shutdown_leaves_no_files(project, pool):
    with worker(project, *POOLS[pool]) as process:
        project.send("waits_for", 0, "release")
        project.send("terminal", 0)
        wait_for("a task to run", lambda: running(project))
        process.send_signal(signal.SIGTERM)
        with released(project, "release"):
            process.wait(60)
    check_that_nothing_is_left(project)
    assert set(reasons(project).values()) <= {Reason.TERMINAL}


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo", "gevent"])
def test_a_soft_shutdown_leaves_letters_of_what_it_cancels_and_no_files(project, pool):
    """It gives tasks some time; then it is a cold shutdown, which ends them if the pool can do that."""
    project.settings = {"worker_soft_shutdown_timeout": SOFT_S}
    is_able = pool in ("prefork", "gevent")
    with worker(project, *POOLS[pool]) as process:
        cut_off = project.send("waits_for", 0, "never" if is_able else "release")
        wait_for_running(project, 1)
        if pool != "solo":  # which runs one task at a time
            in_time = project.send("waits_for", 1, "soon")
            wait_for_running(project, 2)
        if pool == "threads":
            # Celery stops the pool in the signal's handler. If the signal comes while the pool starts a
            # thread, that waits for a lock of its own for ever. What the event loop notes comes later.
            wait_for("the acknowledgements to be noted", lambda: forgotten(project) == 2)
        process.send_signal(signal.SIGQUIT)
        with released(project, "soon"):
            if pool != "solo":
                result = project.app.AsyncResult(in_time)
                wait_for("a task to end in time", lambda: result.state == SUCCESS)
            with released(project, "release"):
                process.wait(60)
    check_that_nothing_is_left(project)
    assert reasons(project) == ({cut_off: Reason.CANCELLED} if is_able else {})


@pytest.mark.parametrize("earlier", ["died", "succeeded"])
def test_a_message_whose_id_was_used_before_is_lost_like_any_other(project, earlier):
    """The end of the earlier message, in the store or in the result backend, is not that of this one."""
    name, args = ("noted", (1, 600)) if earlier == "died" else ("waits_for", (1, "never"))
    with worker(project, *POOLS["prefork"]) as process:
        if earlier == "died":
            send_nightly(project, name, 0, 0, True)
            project.wait_for_letter("nightly")
            store = project.dlq.store
            store.closing.discard(Filter(task="proj.noted"), who="ann", why="x", now=store.now())
        else:
            with released(project, "release"):
                send_nightly(project, name, 0, "release")
                result = project.app.AsyncResult("nightly")
                wait_for("its success", lambda: result.state == SUCCESS)
            time.sleep(1.1)  # some databases keep whole seconds, so a younger success would count
        send_nightly(project, name, *args)
        wait_for("its acknowledgement to be noted", lambda: forgotten(project) == 1)
        kill(process)
    assert list(project.dlq.recorder.recover()) == [Recovered(processes=1, letters=1)]
    letter = project.letter("nightly")
    assert (letter.state, letter.reason, letter.args) == (State.DEAD, Reason.LOST, [*args])


def send_nightly(project: Project, name: str, *args: object) -> None:
    project.app.send_task(f"proj.{name}", args, task_id="nightly")
    project.sent.append("nightly")


def test_a_redelivered_message_is_not_lost_if_its_worker_is_killed_while_it_shuts_down(
    make_project, urls_of
):
    """The worker stops counting the delivery before the task has ended."""
    project = make_project(*urls_of("rabbitmq-sqlite"), module="proj_recorded")
    task_id = project.send("waits_for", 0, "never")
    with project.app.connection_for_write() as connection:
        wait_for("the message", lambda: connection.default_channel.basic_get(project.queue))

    def is_counted() -> bool:
        return bool(project.dlq.store.deliveries.find(task_id, "proj.waits_for"))

    with worker(project, *POOLS["prefork"]) as process:
        wait_for("the acknowledgement to be noted", lambda: forgotten(project) == 1)
        assert is_counted()
        process.send_signal(signal.SIGTERM)
        wait_for("the worker to stop counting", lambda: not is_counted())
        kill(process)
    list(project.dlq.recorder.recover())
    check_that_nothing_is_left(project)
    assert reasons(project) == {task_id: Reason.LOST}


def test_replaced_and_killed_pool_processes_leave_no_messages(project):
    """The pool grows and shrinks, replaces its processes after a few tasks, and some are killed. Then the
    whole worker is killed while it has nothing to do: no message is lost."""
    with worker(project, "--autoscale", "4,1", "--max-tasks-per-child", "5") as process:
        quick = [project.send("noted", number, 0.01) for number in range(60)]
        poison = {project.send("is_killed"): Reason.POISON for _ in range(3)}
        terminal = {project.send("terminal", number): Reason.TERMINAL for number in range(3)}
        wait_for("all to run", lambda: len(read_notes(project).ended) == len(quick))
        wait_for("the letters", lambda: len(letters_of(project)) == 6)
        wait_for_running(project, 0)
        kill(process)
    list(project.dlq.recorder.recover())
    check_that_nothing_is_left(project)
    assert reasons(project) == poison | terminal


def test_processes_that_are_too_large_are_replaced_and_leave_no_messages(project):
    project.settings = {"worker_max_memory_per_child": 1}  # kB: each process runs one task
    with worker(project, *POOLS["prefork"]) as process:
        for number in range(20):
            project.send("noted", number, 0.0)
        wait_for("all to run", lambda: len(read_notes(project).ended) == 20)
        wait_for_running(project, 0)
        kill(process)
    list(project.dlq.recorder.recover())
    check_that_nothing_is_left(project)
    assert reasons(project) == {}


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_tasks_that_run_while_the_broker_is_lost_end_once(behind_proxy, pool):
    if pool == "prefork" and minor(CELERY) < (5, 6):
        pytest.skip("Celery 5.5 may not read the results of its processes any more")
    project, proxy = behind_proxy
    project.module = "proj_released"
    # On gevent, Celery fails there, and drops messages.
    project.settings = {"worker_enable_prefetch_count_reduction": False}
    with worker(project, *POOLS[pool]) as process:
        project.send("waits_for", 0, "last")
        failing = project.send("released", 1, fails=True)
        wait_for_running(project, 2)
        # Otherwise, the broker may deliver them again.
        wait_for("the acknowledgements to be noted", lambda: forgotten(project) == 2)
        proxy.sever()
        with released(project, "release"):
            wait_for("the letter", lambda: project.letter(failing))
        with released(project, "last"):
            wait_for_running(project, 0)
        project.send("noted", 2, 0.0)
        wait_for("the broker to be back", lambda: 2 in read_notes(project).ended)
        wait_for_running(project, 0)
        kill(process)
    list(project.dlq.recorder.recover())
    check_that_nothing_is_left(project)
    assert reasons(project) == {failing: Reason.TERMINAL}


def test_workers_of_one_name_leave_each_others_files_alone(project):
    project.settings = {"dlq_restore_unacked": False}
    namesake = ("-n", "namesake@%h", "--pool", "threads", "-c", "1", "--prefetch-multiplier", "1")
    with worker(project, *namesake) as killed:
        lost = project.send("waits_for", 0, "never")
        wait_for_running(project, 1)
        project.send("waits_for", 1, "never")  # which the killed worker only holds
        with worker(project, *namesake) as living:
            project.send("waits_for", 2, "release")
            project.send("waits_for", 3, "release")
            wait_for_running(project, 2)
            # Otherwise, the broker may deliver them again.
            wait_for("the acknowledgements to be noted", lambda: forgotten(project) == 2)
            kill(killed)
            assert list(project.dlq.recorder.recover()) == [Recovered(processes=1, letters=1)]
            assert reasons(project) == {lost: Reason.LOST}
            assert running(project) == 1
            with released(project, "release"):
                wait_for_running(project, 0)
                living.send_signal(signal.SIGTERM)
                living.wait(60)
    check_that_nothing_is_left(project)
    assert reasons(project) == {lost: Reason.LOST}


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_items_that_ran_in_a_killed_worker_are_one_letter(project, pool):
    carried = signature("proj.waits_for", app=project.app)
    items = xstarmap(carried, [(0, "first"), (1, "second")], app=project.app)
    with worker(project, *POOLS[pool]) as process:
        sent = items.apply_async().id
        wait_for("its acknowledgement to be noted", lambda: forgotten(project) == 1)
        kill(process)
    assert list(project.dlq.recorder.recover()) == [Recovered(processes=1, letters=1)]
    assert reasons(project) == {sent: Reason.LOST}
    assert project.letter(sent).task == "celery.starmap"


@pytest.mark.nightly  # sometimes Celery reads results for a minute before it ends
def test_a_cold_shutdown_makes_no_letters_of_tasks_that_had_ended(project):
    chance = random.Random(7)
    send_noted(project, 2_000, chance, body_s=0.01)
    for _ in range(COLD_SHUTDOWNS):
        before = read_notes(project).runs
        with worker(project, *POOLS["prefork"]) as process:
            wait_for("tasks to run", lambda: read_notes(project).runs > before)  # noqa: B023
            time.sleep(chance.uniform(0, 0.2))
            process.send_signal(signal.SIGQUIT)
            process.wait(200)
    wait_for_recovery(project)
    notes = read_notes(project)
    letters = {int(letter.args[0]) for letter in letters_of(project)}
    assert letters & notes.ended.keys() == set()
    assert notes.began.keys() == notes.ended.keys() | letters
