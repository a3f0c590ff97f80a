"""A redrive from the command line, from the first order to the last outcome: real workers, a real
terminal's signals."""

import json
import re
import signal
import subprocess

import pytest
from project import running, wait_for

from celery_dlq.model.operation import OperationState
from celery_dlq.model.states import State

pytestmark = [pytest.mark.slow, pytest.mark.service]


@pytest.fixture(scope="module")
def shared(tmp_path_factory, redis_url):
    """A project with a worker, which soon sees what is left to it."""
    directory, url = tmp_path_factory.mktemp("commands"), f"{redis_url}/9"
    with running(directory, url, url, imports=["quick_looks"]) as project:
        yield project


@pytest.fixture
def project(shared):
    """That project, with an empty store and no fix."""
    yield shared
    shared.begin_again()


@pytest.fixture
def dead(project):
    """Lets this many letters die; returns their ids."""

    def dead(count):
        ids = [project.send("terminal", number) for number in range(count)]
        for task_id in ids:
            project.wait_for_letter(task_id)
        return ids

    return dead


def states(project):
    return {state: project.count(states=frozenset({state})) for state in State}


def operation_of(said):
    (found,) = re.findall(r"operations (?:resume|show) (\w{12})", said)[:1]
    return found


def test_a_canary_that_succeeds_is_followed_by_the_others(project, dead):
    dead(8)
    project.fixed.touch()
    done = project.run(
        "dlq", "redrive", "--all", "--yes", "--canary", "2", "--rate", "50/s", "--wait", "1m"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "waits for the canary" in done.stderr
    assert "Sent 8 of 8 dead letters: 8 succeeded." in done.stdout
    assert states(project)[State.RESOLVED] == 8


def test_a_canary_that_fails_ends_the_redrive(project, dead):
    ids = dead(8)
    done = project.run("dlq", "redrive", "--all", "--yes", "--canary", "1")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "is aborted: the canary failed" in done.stderr
    assert "Sent 1 of 8 dead letters: 1 failed again." in done.stderr
    assert "7 letters not sent and left unchanged." in done.stderr
    # Two processes ran them: the oldest failure need not be that of the first message.
    [canary] = [number for number in range(8) if project.letter(ids[number]).redrive_count]
    assert f"Failed again: {ids[canary]}: ValueError: bad currency {canary}" in done.stderr
    acts = json.loads(project.invoke("audit", "--format", "json").stdout)
    assert [act["act"] for act in acts] == ["abort", "redrive"]


def test_ctrl_c_pauses_and_resume_continues(project, dead):
    ids = dead(6)
    project.fixed.touch()
    process = subprocess.Popen(
        project.command("dlq", "redrive", "--all", "--yes", "--rate", "1/s"),
        env=project.environment, cwd=project.directory, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    wait_for("the first to be sent", lambda: states(project)[State.DEAD] < 6)
    process.send_signal(signal.SIGINT)
    _stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Interrupted." in stderr
    assert states(project)[State.DEAD] > 0
    ((paused),) = project.dlq.redrives.find()
    assert paused.state is OperationState.PAUSED

    done = project.run("dlq", "operations", "resume", operation_of(stderr)[:4])
    assert done.returncode == 0, done.stderr
    wait_for("all outcomes", lambda: states(project)[State.RESOLVED] == 6)
    assert {project.letter(task_id).redrive_count for task_id in ids} == {1}


def test_a_worker_runs_an_operation_that_is_left_to_it(project, dead):
    dead(3)
    project.fixed.touch()
    left = project.run("dlq", "redrive", "--all", "--yes", "--detach")
    assert left.returncode == 0, left.stderr
    operation = operation_of(left.stdout)
    wait_for("all outcomes", lambda: states(project)[State.RESOLVED] == 3)
    wait_for("the end", lambda: project.dlq.redrives.get(operation).state is OperationState.DONE)
    shown = json.loads(project.invoke("operations", "show", operation, "--format", "json").stdout)
    assert (shown["state"], shown["detached"], shown["succeeded"], shown["sendings"]) == (
        "done", True, 3, [],
    )  # fmt: skip


def test_two_operators_send_each_letter_once(project, dead):
    ids = dead(40)
    project.fixed.touch()
    both = [
        subprocess.Popen(
            project.command("dlq", "redrive", "--all", "--yes"),
            env=project.environment, cwd=project.directory, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]  # fmt: skip
    for process in both:
        process.communicate(timeout=300)
    wait_for("all outcomes", lambda: states(project)[State.RESOLVED] == 40)
    assert {project.letter(task_id).redrive_count for task_id in ids} == {1}


def test_changes_are_in_the_letters_history(project, dead):
    (task_id,) = dead(1)
    project.fixed.touch()
    dry = project.run("dlq", "redrive", task_id, "--set", "args.0=7", "--dry-run")
    assert "1 dead letter of 1 would be sent." in dry.stdout, dry.stderr
    assert "- args[0] = 0\n  + args[0] = 7" in dry.stdout
    done = project.run("dlq", "redrive", task_id, "--set", "args.0=7", "--wait", "1m")
    assert done.returncode == 0, done.stderr
    shown = json.loads(project.invoke("show", task_id, "--format", "json").stdout)
    assert shown["redrives"][0]["change"] == "- args[0] = 0\n+ args[0] = 7"
    assert shown["args"] == [0]
    assert project.app.AsyncResult(task_id).get(timeout=10) == 7
