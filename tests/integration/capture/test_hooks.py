"""Hooks of real workers, and of a process that redrives: called where it happens, without delaying it."""

import http.server
import re
import threading
from dataclasses import replace

import pytest
import standardwebhooks
from project import PATIENCE_S, wait_for

from celery_dlq import Filter, Guard, OperationState, Orders, State

pytestmark = [pytest.mark.slow, pytest.mark.service]

SECRET = "whsec_" + "c2VjcmV0" * 4

#: A user's module of hooks, good and bad ones.
ALERTS = """
import os, threading
from celery_dlq.hooks import Webhook
from celery_dlq.hooks.registry import Hooks

if "HOOKS_END_SOON" in os.environ:
    Hooks.finish.__defaults__ = (1.0,)

posted = Webhook(os.environ["HOOK_URL"], os.environ["HOOK_SECRET"])

def raises(letter):
    raise RuntimeError("no pager today")

def written(letter):
    with open("written", "a") as file:
        print(letter.task_id, file=file)

def hangs(letter):
    threading.Event().wait()
"""


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        said = standardwebhooks.Webhook(SECRET).verify(body, dict(self.headers))
        self.server.got.append((said["type"], said["data"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def receiver():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        server.got = []
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def alerted(project, receiver):
    """A project whose hooks are in a module of its own."""
    (project.directory / "alerts.py").write_text(ALERTS)
    project.environ = {
        "HOOK_URL": f"http://127.0.0.1:{receiver.server_port}/",
        "HOOK_SECRET": SECRET,
    }
    return project


def posted(receiver, kind):
    """The ids of the letters that the webhook has received."""
    return {letter["task_id"] for said, letter in receiver.got if said == kind}


def counted(project):
    """How often the hook that raises has failed, and how many letters wait for the one that hangs."""
    hooks = project.statistics()["hooks"]
    return hooks["alerts.raises"]["failed"], hooks["alerts.hangs"]["waiting"]


def test_a_webhook_receives_letters_whatever_other_hooks_do(alerted, receiver):
    alerted.settings = {
        "dlq_hooks": {
            "dead_letter": ["alerts.raises", "alerts.hangs", "alerts.posted"],
            "resolved": ["alerts.posted"],
        },
    }
    alerted.environ["HOOKS_END_SOON"] = "yes"  # the one that hangs is waited for
    redriven = []
    alerted.dlq.on_redriven(redriven.append)
    with alerted.worker("-c", "1"):
        ids = [alerted.send("terminal", number) for number in range(3)]
        wait_for("the webhooks", lambda: posted(receiver, "dead_letter") == set(ids))
        wait_for("the other hooks", lambda: counted(alerted) == (3, 3))

        alerted.fixed.touch()
        alerted.dlq.redrives.start(Filter(queue=alerted.queue), who="tester")
        wait_for("the outcomes", lambda: posted(receiver, "resolved") == set(ids))
    alerted.dlq.hooks.finish(PATIENCE_S)
    assert {letter.task_id for letter in redriven} == set(ids)
    assert {letter.state for letter in redriven} <= {State.REDRIVEN, State.RESOLVED}
    assert len(receiver.got) == 6
    [log] = alerted.directory.glob("worker-*.log")
    assert "hook alerts.hangs took too long when its process had to end" in log.read_text()


def test_a_hook_gets_every_letter_of_a_storm(alerted):
    alerted.settings = {"dlq_hooks": {"dead_letter": ["alerts.written"]}}
    written = alerted.directory / "written"
    ids = [alerted.send("terminal", number) for number in range(600)]
    with alerted.worker("-c", "2"):
        wait_for("the letters", lambda: alerted.count() == len(ids))
    assert sorted(written.read_text().split()) == sorted(ids)


def test_a_storm_is_one_new_group_and_a_resolved_one_is_reported_when_it_is_back(alerted, receiver):
    alerted.settings = {
        "dlq_hooks": {"new_group": ["alerts.posted"], "regression": ["alerts.posted"]},
    }
    with alerted.worker("-c", "2"):
        for number in range(20):
            alerted.wait_for_letter(alerted.send("terminal", number))
        wait_for("the webhook", lambda: receiver.got)
        [(kind, group)] = receiver.got
        assert (kind, group["task"], group["status"]) == ("new_group", "proj.terminal", "open")
        alerted.dlq.groups.resolve(group["fingerprint"], who="ann")
        alerted.wait_for_letter(alerted.send("terminal", 20))
        wait_for("the second webhook", lambda: len(receiver.got) > 1)
    [_, (kind, again)] = receiver.got
    assert (kind, again["fingerprint"]) == ("regression", group["fingerprint"])


def test_an_abort_is_reported_in_the_process_that_redrives(project):
    aborted = []
    project.dlq.on_operation_aborted(aborted.append)
    with project.worker("-c", "1"):
        for task_id in [project.send("terminal", number) for number in range(4)]:
            project.wait_for_letter(task_id)
        orders = Orders()
        orders = replace(
            orders, guard=Guard(in_a_row=2), pacing=replace(orders.pacing, batch=1, max_in_flight=1)
        )
        ended = project.dlq.redrives.start(Filter(queue=project.queue), who="tester", orders=orders)
    assert ended.state is OperationState.ABORTED
    project.dlq.hooks.finish(PATIENCE_S)
    [reported] = aborted
    assert (reported.id, reported.state) == (ended.id, OperationState.ABORTED)
    assert "2 in a row came back" in reported.cause


def test_a_hook_that_cannot_be_imported_is_refused_by_the_worker_and_the_doctor(project):
    project.settings = {"dlq_hooks": {"new_group": ["alerts.page"]}}
    process, log = project.start_worker("-c", "1")
    assert process.wait(PATIENCE_S) != 0
    assert (
        "dlq_hooks: 'new_group': 'alerts.page' cannot be imported: ModuleNotFoundError"
        in log.read_text()
    )
    done = project.run("dlq", "doctor")
    assert done.returncode != 0
    assert re.search(r"hooks\s+error.*dlq_hooks", done.stdout), done.stdout
