"""What monitors see of real workers: their events, and the metrics that they serve."""

import threading
from urllib.request import urlopen

import pytest
from celery.events.state import State as Seen
from project import wait_for
from prometheus_client.parser import text_string_to_metric_families

from celery_dlq import Filter, Reason

pytestmark = [pytest.mark.slow, pytest.mark.service]

#: The code that a user adds to a worker, so that it can be scraped; the port is written to a file.
SERVE = """
from celery import signals
from prometheus_client import start_http_server

@signals.worker_ready.connect
def serve(**_):
    server, _thread = start_http_server(0, addr="127.0.0.1")
    open("port", "w").write(str(server.server_port))
"""


@pytest.fixture
def seen(project):
    """The tasks as a monitor such as Flower sees them."""
    state, connected, receivers = Seen(), threading.Event(), []
    state.states = []

    def note(event):
        state.event(event)
        if event["type"].startswith("task-"):
            state.states.append((event["uuid"], state.tasks[event["uuid"]].state))

    def listen():
        with project.app.connection_for_read() as connection:
            receiver = project.app.events.Receiver(connection, handlers={"*": note})
            receiver.on_consume_ready = lambda *_, **__: connected.set()
            receivers.append(receiver)
            receiver.capture(wakeup=False)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    assert connected.wait(60)
    yield state
    receivers[0].should_stop = True
    thread.join(60)


def shown(seen, task_id, state):
    wait_for(
        f"{task_id} to be shown as {state}",
        lambda: task_id in seen.tasks and seen.tasks[task_id].state == state,
    )


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_dead_letter_is_shown_as_one_until_its_redrive_succeeds(project, seen, pool):
    with project.worker("-E", "-P", pool, "-c", "1"):
        task_id = project.send("exhausted")
        shown(seen, task_id, "DEAD-LETTERED")
        project.wait_for_letter(task_id)
        project.fixed.touch()
        project.dlq.redrives.start(Filter(ids=(task_id,)), who="ann")
        shown(seen, task_id, "SUCCESS")
    assert (task_id, "REDRIVEN") in seen.states


def test_a_task_that_the_hard_time_limit_ends_is_shown_as_a_dead_letter(project, seen):
    with project.worker("-E", "-c", "1"):
        task_id = project.send("hangs")
        shown(seen, task_id, "DEAD-LETTERED")
        assert project.wait_for_letter(task_id).reason is Reason.TIMEOUT


def scraped(project):
    port = (project.directory / "port").read_text()
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        text = response.read().decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("celery_dlq_")
    }


def test_a_scraped_worker_shows_its_counts(project):
    (project.directory / "served.py").write_text(SERVE)
    project.settings = {"dlq_worker_metrics": True, "imports": ["served"]}
    with project.worker("-c", "2"):
        task_ids = [project.send("terminal"), project.send("exhausted")]
        for task_id in task_ids:
            project.wait_for_letter(task_id)
        found = wait_for(
            "both captures to be counted",
            lambda: (
                (now := scraped(project))[("celery_dlq_worker_capture_seconds_count",)] == 2 and now
            ),
        )
    letters = "celery_dlq_worker_dead_letters_total"
    assert sum(value for key, value in found.items() if key[0] == letters) == 2
    retries = {
        key[1:]: value
        for key, value in found.items()
        if key[0] == "celery_dlq_worker_retries_total"
    }
    assert [task for _rule, task in retries] == ["proj.exhausted"]
    assert all(rule not in ("none", "other") for rule, _task in retries)
    assert found[("celery_dlq_worker_store_seconds_count", "save")] >= 1
    assert found[("celery_dlq_worker_spool_bytes",)] == 0
