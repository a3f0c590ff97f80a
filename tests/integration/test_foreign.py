"""Messages that never become a task: each is one letter, whole, and the worker lives on."""

import pytest
from foreign_messages import MESSAGES, publish
from project import wait_for

from celery_dlq import Filter, Reason
from celery_dlq.states import State
from celery_dlq.store.rows import stored_id

pytestmark = [pytest.mark.slow, pytest.mark.service]

POOLS = {
    "prefork": ("-P", "prefork", "-c", "2"),
    "threads": ("-P", "threads", "-c", "2"),
    "solo": ("-P", "solo"),
}

#: What a redrive mends by itself: a first attempt has no such headers.
RENEWED = {"bad eta", "bad expires", "eta out of range", "bad retries"}

#: The tasks that strangers ask for, once somebody has written them.
DEPLOYED = """
from proj import DLQTask, app

@app.task(base=DLQTask, name="far.away")
def away(x, token=None): return x

@app.task(base=DLQTask, name="far.old")
def old(x): return x
"""


@pytest.fixture(params=["redis", "classic", "quorum"])
def project(request, make_project, redis_url):
    if request.param == "redis":
        return make_project(f"{redis_url}/9", backend=f"{redis_url}/9")
    rabbitmq = request.getfixturevalue("rabbitmq_url")
    return make_project(rabbitmq, backend=f"{redis_url}/9", queue_type=request.param)


def not_here(): ...


def send_all(project, kinds=tuple(MESSAGES)):
    for kind in kinds:
        publish(project.app, project.queue, kind)


def letters(project):
    """The letters of this project's queue, by what kind of message they are."""
    page = project.dlq.store.find(Filter(queue=project.queue, states=frozenset(State)), limit=500)
    whole = [project.letter(found.task_id) for found in page.letters]
    by_kind = {letter.envelope.properties["type"]: letter for letter in whole}
    assert len(by_kind) == len(whole), "one letter each"
    return by_kind


def states(project):
    return {letter.state.value for letter in letters(project).values()}


def is_alive(project, worker):
    result = project.app.AsyncResult(project.send("add", 1, 2))
    return result.get(timeout=60) == 3 and worker.poll() is None


@pytest.mark.parametrize("pool", POOLS)
def test_each_is_one_letter_and_the_worker_runs_the_next_task(pool, project):
    with project.worker(*POOLS[pool]) as worker:
        send_all(project)
        assert is_alive(project, worker)
        wait_for("all letters", lambda: project.count() >= len(MESSAGES))
    found = letters(project)
    assert found.keys() == MESSAGES.keys()
    seen = {kind: (one.reason, one.explanation.rule, one.task) for kind, one in found.items()}
    assert seen == {kind: (one.reason, one.rule, one.task) for kind, one in MESSAGES.items()}
    for kind, sent in MESSAGES.items():
        envelope = found[kind].envelope
        assert envelope.body == sent.body, kind
        assert (envelope.content_type, envelope.content_encoding) == (
            sent.content_type,
            sent.content_encoding,
        )
        assert {**envelope.headers, "x-dlq-compressed": 0} == {
            **(sent.headers or {}),
            "x-dlq-compressed": 0,
        }
        if sent.task_id:
            assert found[kind].task_id == stored_id(sent.task_id)
    assert found["unknown task"].kwargs == {"token": "[redacted]"}


def test_what_is_sent_back_unmended_comes_back_to_its_letter(project):
    with project.worker("-c", "1") as worker:
        send_all(project)
        wait_for("all letters", lambda: project.count() >= len(MESSAGES))
        for name in ("far.away", "far.old"):
            project.app.task(name=name, shared=False)(not_here)
        for reason in (Reason.UNKNOWN_TASK, Reason.MALFORMED):
            wanted = Filter(queue=project.queue, reason=reason)
            report = project.dlq.redrive(wanted, who="tester")
            assert (report.unsent, report.skipped, report.error) == (0, (), None)
        wait_for("all to come to an end", lambda: not states(project) & {"claimed", "redriven"})
        assert is_alive(project, worker)
    found = letters(project)
    assert found.keys() == MESSAGES.keys()
    for kind, letter in found.items():
        if kind in RENEWED:
            assert letter.state is State.RESOLVED, kind
        else:
            assert (letter.state, letter.redrive_count) == (State.DEAD, 1), kind
            assert [attempt.redrive for attempt in letter.attempts] == [0, 1], kind
            assert letter.explanation.rule == MESSAGES[kind].rule, kind


def test_an_unknown_task_runs_after_it_has_been_deployed(project):
    unknown = [kind for kind, one in MESSAGES.items() if one.reason is Reason.UNKNOWN_TASK]
    with project.worker("-c", "1"):
        send_all(project, unknown)
        wait_for("all letters", lambda: project.count() == len(unknown))
    refused = project.run("dlq", "redrive", "--reason", "unknown_task", "--yes")
    assert refused.returncode == 1
    assert "task far.away is not registered in this app; deploy or import it" in refused.stderr

    (project.directory / "deployed.py").write_text(DEPLOYED)
    project.module = "deployed"
    with project.worker("-c", "1"):
        sent = project.run("dlq", "redrive", "--reason", "unknown_task", "--yes")
        assert sent.returncode == 0, sent.stderr
        wait_for("the outcomes", lambda: not states(project) & {"claimed", "redriven"})
    without_id = letters(project)["unknown task without id"]
    assert (without_id.reason, without_id.message) == (Reason.MALFORMED, "it has no id")
    assert {kind: one.state for kind, one in letters(project).items()} == {
        kind: State.DEAD if kind == "unknown task without id" else State.RESOLVED
        for kind in unknown
    }
