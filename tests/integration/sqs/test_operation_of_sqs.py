"""What a user of Amazon SQS sees and pays for: the doctor's findings, and the requests of idle workers."""

from __future__ import annotations

import re
import time
from collections import Counter

import pytest
from sqs_project import SQSProject
from support.servers.own_sqs import EXPIRED, Front

pytestmark = [
    pytest.mark.slow, pytest.mark.service, pytest.mark.nightly, pytest.mark.timeout(300),
    # boto3 leaves connections to the collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]  # fmt: skip

IDLE_S = 130


def findings(project: SQSProject) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in project.run("dlq", "doctor").stdout.splitlines()[1:]:
        check, level, text = re.split(r"\s{2,}|(?<=ok) ", line, maxsplit=2)
        found.setdefault(check, []).append(f"{level} {text}")
    return found


def test_the_doctor_asks_each_queue_and_no_worker(project: SQSProject):
    project.with_redrive_policy(20, VisibilityTimeout="60")
    project.predefine(project.queue)
    with project.worker("--pool", "solo"):
        found = findings(project)
    assert found["broker"] == [f"ok queue {project.queue} answers; its visibility timeout is 1m"]
    [stalled] = found["stalled"]
    assert stalled.startswith("ok Amazon SQS has no remote control")


def test_the_doctor_names_dangerous_attributes(project: SQSProject):
    project.with_redrive_policy(3, VisibilityTimeout="5")
    project.transport(visibility_timeout=600)
    timeout, policy = findings(project)["broker"]
    assert timeout.startswith(
        f"warning queue {project.queue}: its visibility timeout is 5s, and workers renew"
    )
    assert "SQS moves a message to its own dead-letter queue after 3 deliveries" in policy
    project.settings["dlq_restore_unacked"] = False
    timeout, _ = findings(project)["broker"]
    assert "is run again while it still waits or runs" in timeout
    project.settings["worker_enable_remote_control"] = True
    assert "worker_enable_remote_control is on" in findings(project)["broker"][-1]


def test_the_doctor_says_why_sqs_does_not_answer(fronted: SQSProject, front: Front):
    fronted.make_queue()
    with front.refusing(lambda *_: EXPIRED):
        [listing] = findings(fronted)["broker"]
        fronted.predefine(fronted.queue, "unknown")
        [of_queue] = findings(fronted)["broker"]
    assert "ExpiredToken" in listing
    assert (
        f"queue {fronted.queue} does not answer" in of_queue,
        "help amazon-sqs" in of_queue,
    ) == (True, True)


def test_an_idle_worker_asks_for_messages_and_next_to_nothing_else(
    fronted: SQSProject, front: Front
):
    fronted.make_queue()
    fronted.transport(wait_time_seconds=10, polling_interval=1)
    with fronted.worker("--pool", "solo"):
        time.sleep(5)
        begin = Counter(front.asked)
        time.sleep(IDLE_S)
        asked = front.asked - begin
    print(f"\n{IDLE_S} s: {dict(asked)}")
    assert asked.pop("ReceiveMessage") > IDLE_S / 12
    assert asked.total() <= 2 * IDLE_S / 60
