"""Letters that are checked, tried, changed by operators, and then run by real workers."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from effects import sendable
from project import running, wait_for

from celery_dlq import Filter, Orders
from celery_dlq.model.operation import OperationState, Repair
from celery_dlq.model.states import State

pytestmark = [pytest.mark.slow, pytest.mark.service]


@pytest.fixture(scope="module")
def shared(tmp_path_factory, redis_url):
    """A project with a worker."""
    directory, url = tmp_path_factory.mktemp("repair"), f"{redis_url}/9"
    with running(directory, url, url, processes=1) as project:
        yield project


@pytest.fixture
def project(shared):
    """That project, with an empty store and no fix."""
    yield shared
    shared.settings.clear()
    shared.begin_again()


@pytest.fixture
def own(make_project, redis_url):
    """A project without a worker."""
    return make_project(f"{redis_url}/9", backend=f"{redis_url}/9")


@pytest.fixture
def died(project):
    """The id of a letter of a task that the worker ran with some arguments."""

    def died(name, *args, **kwargs):
        task_id = project.send(name, *args, **kwargs)
        project.wait_for_letter(task_id)
        return task_id

    return died


def deploy(project, functions, **settings):
    """Give the app of the next commands and workers these functions and settings, in addition to its own."""
    start = "import celery_dlq, proj\ndlq = celery_dlq.DeadLetterQueue.of(proj.app)\n"
    project.directory.joinpath("fixes.py").write_text(start + functions)
    project.settings.update(imports=["quick_looks", "fixes"], **settings)


AS_NUMBERS = """
@dlq.repair("as numbers")
def as_numbers(args, kwargs, headers):
    return [int(args[0])], kwargs, headers
"""
#: Applied twice, it would add two; its result fits the task in any case.
ONE_MORE = """
@dlq.upgrade("proj.terminal", to="1.5")
def one_more(args, kwargs, headers):
    return [args[0] + 1], kwargs, headers
"""


def redrive(project, **repair):
    orders = Orders(repair=Repair(**repair))
    return project.dlq.redrives.start(Filter(queue=project.queue), who="tester", orders=orders)


def result_of(project, task_id):
    project.wait_for_letter(task_id, State.RESOLVED)
    result = project.app.AsyncResult(task_id)
    wait_for("the result", result.successful)
    return result.get(timeout=10)


def sent_message(project):
    with project.app.connection_for_read() as connection:
        message = connection.SimpleQueue(project.queue).get(timeout=10)
        message.ack()
        return message


def test_a_value_is_set_and_the_original_stays(project, died):
    task_id = died("add", "5", more=2)
    before = project.letter(task_id)
    redrive(project, assignments=("args[0]=5",))
    assert result_of(project, task_id) == 7
    assert project.letter(task_id).envelope == before.envelope
    [sending] = project.dlq.store.sendings.of_letter(task_id)
    assert sending.change == '- args[0] = "5"\n+ args[0] = 5'


def test_a_repair_by_its_name_on_the_command_line(project, died):
    task_id = died("add", "5", more=2)
    words = ("redrive", task_id, "--repair", "as numbers", "--yes")
    refused = project.invoke(*words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "'as numbers' is not a repair of this app; none exists." in refused.stderr
    deploy(project, AS_NUMBERS)
    tried = project.run("dlq", *words, "--dry-run")
    assert "+ args[0] = 5" in tried.stdout
    assert project.letter(task_id).state is State.DEAD
    assert project.run("dlq", *words).returncode == 0
    assert result_of(project, task_id) == 7


def test_a_worker_looks_the_repair_up_and_pauses_if_it_does_not_know_it(own):
    own.dlq.repair("as numbers")(lambda args, kwargs, headers: pytest.fail("a worker calls it"))
    own.dlq.store.letters.save([one := sendable(own, "5", "proj.add")])
    orders = Orders(repair=Repair(function="as numbers"))
    made = own.dlq.redrives.start(Filter(queue=own.queue), who="tester", orders=orders, detach=True)
    with own.worker("-c", "1"):
        wait_for("the pause", lambda: own.dlq.redrives.get(made.id).state is OperationState.PAUSED)
    said = "'as numbers' is not a repair of this app; none exists. Correct the name, or deploy"
    assert said in own.dlq.redrives.get(made.id).cause
    deploy(own, AS_NUMBERS)
    own.dlq.redrives.resume(made.id, who="tester", detach=True)
    with own.worker("-c", "1"):
        assert result_of(own, one.task_id) == 5


def test_an_upgrade_is_made_once_in_every_redrive(own):
    """The letter keeps its original, which stays one of the release of its first failure."""
    task_id = own.send("terminal", 1)
    with own.worker("-c", "1"):
        own.wait_for_letter(task_id)
    deploy(own, ONE_MORE, dlq_release="1.5")

    def leave_to_the_worker():
        own.dlq.redrives.start(Filter(ids=(task_id,)), who="tester", detach=True)

    with own.worker("-c", "1"):
        leave_to_the_worker()
        wait_for("its failure", lambda: own.letter(task_id).redrive_count == 1)
        again = own.wait_for_letter(task_id)
        assert (again.release, again.message_release) == ("1.5", "1.4.2")
        assert again.message == "bad currency 2"
        [sending] = own.dlq.store.sendings.of_letter(task_id)
        assert sending.change == "- args[0] = 1\n+ args[0] = 2"
        own.fixed.touch()
        leave_to_the_worker()
        assert result_of(own, task_id) == 2


def test_an_edit_is_sent_by_every_redrive_after_it(project, died):
    task_id = died("add", "5", more=2)
    project.dlq.edit(task_id, who="ann", args=[6])
    assert redrive(project).counts.out == 1
    assert result_of(project, task_id) == 8
    [change] = project.dlq.store.edits.of_letter(task_id)
    assert json.loads(change.before.body)[0] == ["5"]


def test_a_task_that_was_renamed(project):
    task_id = project.app.send_task("proj.was_called_so", (3,)).id
    project.sent.append(task_id)
    project.wait_for_letter(task_id)
    assert redrive(project).counts.skipped == 1
    assert redrive(project, to_task="proj.succeed").counts.out == 1
    assert result_of(project, task_id) == 3


def test_a_repair_that_fails_leaves_the_original_as_it_was(project, died):
    task_id = died("add", "5", more=2)
    before = project.letter(task_id)
    redrive(project, assignments=("args[0]=six",), to_task="proj.member", priority=9)
    wait_for("its failure", lambda: project.letter(task_id).redrive_count == 1)
    again = project.wait_for_letter(task_id)
    assert again.task == "proj.member"
    assert (again.envelope, again.args) == (before.envelope, before.args)
    redrive(project, assignments=("args[0]=6",))
    assert result_of(project, task_id) == 8


def test_an_eta_and_another_priority(own):
    own.dlq.store.letters.save([sendable(own, 1, "proj.terminal")])
    before = datetime.now(timezone.utc)
    redrive(own, countdown_s=300.0, priority=9)
    message = sent_message(own)
    eta = datetime.fromisoformat(message.headers["eta"])
    assert timedelta(seconds=300) <= eta - before < timedelta(seconds=360)
    assert message.properties["priority"] == 9


def test_a_queue_that_is_not_there(make_project, rabbitmq_url):
    project = make_project(rabbitmq_url)
    project.dlq.store.letters.save([one := sendable(project, 1, "proj.terminal")])
    assert redrive(project, to_queue=f"{project.queue}-away").counts.skipped == 1
    [sending] = project.dlq.store.sendings.of_letter(one.task_id)
    assert f"queue {project.queue}-away does not exist" in sending.why
    assert project.letter(one.task_id).state is State.DEAD


def test_arguments_that_do_not_fit_any_more(project, died):
    task_id = died("member")
    done = project.run("dlq", "redrive", task_id, "--yes")
    assert done.returncode != 0
    assert "do not fit proj.member any more: missing x;" in done.stdout + done.stderr
    project.fixed.touch()
    done = project.run("dlq", "redrive", task_id, "--set", "kwargs.x=5", "--yes")
    assert done.returncode == 0, done.stderr
    assert result_of(project, task_id) == 5
