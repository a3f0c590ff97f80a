"""The canvas of a redriven message continues, on result backends that count members and on others."""

from contextlib import contextmanager

import pytest
from celery import chain, chord, group, signature
from project import running, wait_for
from queues import redis_options
from support.factories import opened

from celery_dlq import Filter
from celery_dlq.model.operation import Orders
from celery_dlq.model.states import State
from celery_dlq.redrive.letter.checks import Checks

pytestmark = [pytest.mark.slow, pytest.mark.service]


#: Chords are looked at more often.
FASTER = {"result_chord_retry_interval": 0.2}


@pytest.fixture(scope="module")
def on_redis(tmp_path_factory, redis_url):
    directory, url = tmp_path_factory.mktemp("redis"), f"{redis_url}/9"
    with running(directory, url, url, **FASTER) as project:
        yield project


@pytest.fixture(scope="module")
def on_database(tmp_path_factory, redis_url, own_postgres_url):
    directory, backend = tmp_path_factory.mktemp("database"), f"db+{own_postgres_url}"
    with running(directory, f"{redis_url}/9", backend, **FASTER) as project:
        yield project


@pytest.fixture(params=["redis", "database"])
def project(request):
    """A worker on one of the result backends, which has nothing to do, an empty store, and no fix."""
    project = request.getfixturevalue(f"on_{request.param}")
    project.app.conf.update(FASTER)
    yield project
    project.begin_again("go", "told", "count-total")


@contextmanager
def at_rest(project):
    """At the end, the worker has done all that the test has led to."""
    yield
    # The last task that runs may send a message.
    wait_for("the worker to be at rest", lambda: (
        not unsettled(project) and not project.active() and not unsettled(project)
    ))  # fmt: skip


def unsettled(project):
    """Messages that the broker has, with the worker or not."""
    with project.app.connection_for_read() as connection:
        channel = connection.default_channel
        # A message moves from the queue to the worker: this order does not miss it.
        waiting = channel._size(project.queue)
        return waiting + channel.client.hlen(redis_options(project.queue)["unacked_key"])


@pytest.fixture
def task(project):
    return lambda name, *args, **kwargs: signature(
        f"proj.{name}", args=args, kwargs=kwargs, app=project.app
    )


def redrive(project, *ids):
    project.dlq.redrives.start(Filter(queue=project.queue, ids=ids), who="tester")


def why_not(project, task_id):
    letter = project.letter(task_id)
    made = opened(project.app, letter)
    return Checks(project.app, Orders()).check(made, letter.last_failed_at).why_not


def dead(project, count=1):
    """The ids of the letters, oldest failure first, once this many are dead."""
    found = wait_for(
        f"{count} dead letters",
        lambda: len(page := find(project, State.DEAD)) == count and page,
    )
    return [letter.task_id for letter in reversed(found)]


def find(project, *states):
    wanted = Filter(queue=project.queue, states=frozenset(states))
    return project.dlq.store.letters.find(wanted).letters


def fresh(project, result):
    """A new result object: one keeps the first final state that it saw, and a redrive changes the state."""
    return project.app.AsyncResult(result.id)


def succeeded(project, result):
    wait_for("the success", lambda: fresh(project, result).successful())
    return fresh(project, result).get(timeout=10)


def failed(project, result):
    wait_for("the failure", lambda: fresh(project, result).failed())


def chord_has_failed(project, task_id):
    """Whether the chord has failed, if its body has no result of its own."""
    backend, group_id = project.app.backend, project.letter(task_id).group_id
    if project.backend.startswith("redis"):
        return not backend.client.exists(backend.get_key_for_group(group_id, ".s"))
    return backend.restore_group(f"celery-dlq-chord-{group_id}", cache=False) is not None


def runs(project, name):
    path = project.directory / f"count-{name}"
    return len(path.read_text()) if path.exists() else 0


def member_of(project, x):
    """The id of the letter of ``member`` with this argument."""
    [found] = [letter for letter in find(project, *State) if letter.args == [x]]
    return found.task_id


class TestChords:
    def test_all_failed_members_in_one_redrive(self, project, task):
        with at_rest(project):
            header = [
                task("succeed", 1),
                task("member", 10),
                task("succeed", 1),
                task("member", 20),
            ]
            result = chord(header, app=project.app)(task("total"))
            dead(project, 2)
            failed(project, result)
            project.fixed.touch()
            redrive(project)
            assert succeeded(project, result) == 32
            assert [fresh(project, part).get(timeout=10) for part in result.parent] == [
                1,
                10,
                1,
                20,
            ]
        assert runs(project, "total") == 1
        assert project.count() == 0

    def test_failed_members_one_after_another(self, project, task):
        with at_rest(project):
            header = [task("succeed", 1), task("member", 10), task("member", 20)]
            result = chord(header, app=project.app)(task("total"))
            dead(project, 2)
            failed(project, result)
            project.fixed.touch()
            first, second = member_of(project, 10), member_of(project, 20)
            redrive(project, first)
            project.wait_for_letter(first, State.RESOLVED)
            failed(project, result)
            redrive(project, second)
            assert succeeded(project, result) == 31
        assert runs(project, "total") == 1

    def test_members_that_fail_again_and_are_redriven_again(self, project, task):
        with at_rest(project):
            result = chord([task("succeed", 1), task("member", 10)], app=project.app)(task("total"))
            [task_id] = dead(project)
            failed(project, result)
            redrive(project)
            wait_for("the second failure", lambda: len(project.letter(task_id).attempts) == 2)
            failed(project, result)
            project.fixed.touch()
            redrive(project)
            assert succeeded(project, result) == 11
        assert runs(project, "total") == 1

    def test_a_member_before_the_others_have_ended(self, project, task):
        with at_rest(project):
            header = [task("waits_for", 1, "go"), task("member", 10)]
            result = chord(header, app=project.app)(task("total"))
            [task_id] = dead(project)
            project.fixed.touch()
            redrive(project)
            project.wait_for_letter(task_id, State.RESOLVED)
            assert runs(project, "total") == 0
            project.directory.joinpath("go").touch()
            assert succeeded(project, result) == 11
        assert runs(project, "total") == 1

    def test_a_chord_of_chains_that_died_at_their_first_task(self, project, task):
        with at_rest(project):
            header = [chain(task("member", 10), task("add", more=5)), task("succeed", 1)]
            result = chord(header, app=project.app)(task("total"))
            dead(project)
            failed(project, result)
            project.fixed.touch()
            redrive(project)
            assert succeeded(project, result) == 16
        assert runs(project, "total") == 1

    def test_a_chord_of_chords(self, project, task):
        with at_rest(project):
            inner = chord([task("member", 10), task("succeed", 2)], task("add"), app=project.app)
            result = chord([inner, task("succeed", 1)], app=project.app)(task("total"))
            [task_id] = dead(project)
            wait_for("the inner chord's failure", lambda: chord_has_failed(project, task_id))
            if not project.backend.startswith("redis"):  # there, the outer one keeps waiting
                failed(project, result)
            project.fixed.touch()
            redrive(project)
            assert succeeded(project, result) == 13
        assert runs(project, "total") == 1

    def test_a_chord_whose_body_is_a_chain(self, project, task):
        with at_rest(project):
            body = chain(task("total"), task("add", more=100))
            result = chord([task("member", 10), task("succeed", 1)], app=project.app)(body)
            [task_id] = dead(project)
            wait_for("the chord's failure", lambda: chord_has_failed(project, task_id))
            project.fixed.touch()
            redrive(project)
            assert succeeded(project, result) == 111
        assert runs(project, "total") == 1

    def test_a_chord_whose_body_died(self, project, task):
        with at_rest(project):
            result = chord([task("succeed", 1), task("succeed", 2)], app=project.app)(
                task("member")
            )
            dead(project)
            project.fixed.touch()
            redrive(project)
            assert succeeded(project, result) == [1, 2]


class TestChordsThatCannotBeCompleted:
    def test_a_chord_that_the_backend_has_forgotten(self, project, task):
        with at_rest(project):
            result = chord([task("succeed", 1), task("member", 10)], app=project.app)(task("total"))
            [task_id] = dead(project)
            failed(project, result)
        forget(project, result.parent.id)
        assert "start the chord again" in why_not(project, task_id)

    def test_a_chord_whose_body_is_a_group(self, project, task):
        with at_rest(project):
            body = group(task("add", more=1), task("add", more=2))
            chord([task("succeed", 1), task("member", 10)], body, app=project.app).apply_async()
            [task_id] = dead(project)
            wait_for("the chord's failure", lambda: chord_has_failed(project, task_id))
        assert "revoked the tasks of its body" in why_not(project, task_id)


def forget(project, group_id):
    """Remove everything that expires when ``result_expires`` has passed since the chord failed."""
    backend = project.app.backend
    if project.backend.startswith("redis"):
        for suffix in (".j", ".d", ".s", ".t", ".c"):
            backend.client.delete(backend.get_key_for_group(group_id, suffix))
    else:
        backend.delete_group(f"celery-dlq-chord-{group_id}")


def test_a_chain_continues(project, task):
    with at_rest(project):
        result = chain(task("succeed", 1), task("member"), task("add", more=5), app=project.app)()
        dead(project)
        project.fixed.touch()
        redrive(project)
        assert succeeded(project, result) == 6
    assert project.count() == 0


def test_a_group_has_all_its_results(project, task):
    with at_rest(project):
        result = group(task("member", 1), task("succeed", 2), task("member", 3), app=project.app)()
        dead(project, 2)
        project.fixed.touch()
        redrive(project)
        assert [succeeded(project, part) for part in result] == [1, 2, 3]


def test_errbacks_run_with_each_death_and_are_named(project, task):
    with at_rest(project):
        result = task("member", 1).on_error(task("tell")).apply_async()
        project.sent.append(result.id)
        called = project.directory / "told"
        dead(project)
        wait_for("the errback", lambda: called.exists() and called.read_text() == f"{result.id}\n")
        project.fixed.touch()
        redrive(project)
        assert succeeded(project, result) == 1
    assert called.read_text() == f"{result.id}\n"
