"""Amazon SQS refuses a part of a redrive: what it has not taken stays open, and the redrive can go on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from effects import sendable
from project import wait_for
from sqs_project import SQSProject
from support.servers.own_sqs import EXPIRED, THROTTLED, Front

from celery_dlq import Filter
from celery_dlq.model.operation import OperationState
from celery_dlq.model.states import State

pytestmark = [
    pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(300),
    # boto3 leaves connections to the collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]  # fmt: skip

LETTERS = 30


def fill(project: SQSProject, letters: int) -> None:
    made = [sendable(project, number, "proj.succeed") for number in range(letters)]
    project.dlq.store.letters.save(made)


def in_state(project: SQSProject, state: State) -> int:
    return project.count(states=frozenset({state}))


@pytest.mark.parametrize(
    ("error", "predefined"),
    [
        pytest.param(EXPIRED, True, id="expired"),
        pytest.param(EXPIRED, False, id="expired-not-predefined", marks=pytest.mark.nightly),
        pytest.param(THROTTLED, False, id="throttled", marks=pytest.mark.nightly),
    ],
)
def test_a_redrive_pauses_and_goes_on(fronted: SQSProject, front: Front, error, predefined):
    project = fronted
    fill(project, LETTERS)
    project.make_queue()
    if predefined:
        project.predefine(project.queue)
    sent: Counter[str] = Counter()

    def refuse(action: str, _: object) -> tuple[str, str] | None:
        sent[action] += 1
        return error if sent["SendMessage"] > LETTERS / 2 else None

    with front.refusing(refuse):
        paused = project.dlq.redrives.start(Filter(queue=project.queue), who="tester")
    assert paused.state is OperationState.PAUSED
    assert error[0] in paused.cause
    assert paused.counts.out == LETTERS / 2 == project.depth()
    assert in_state(project, State.DEAD) == LETTERS / 2

    # While it lasts, the command says so, and nothing moves.
    with front.refusing(refuse):
        again = project.run("dlq", "operations", "resume", paused.id)
    assert again.returncode != 0
    assert (error[0] in again.stderr + again.stdout, "Traceback" in again.stderr) == (True, False)
    assert in_state(project, State.DEAD) == LETTERS / 2

    ended = project.dlq.redrives.resume(paused.id, who="tester")
    assert (ended.state, ended.counts.left) == (OperationState.DONE, 0)
    assert project.depth() == LETTERS


@pytest.mark.nightly
def test_a_message_that_is_too_large_stays_open(project: SQSProject):
    fill(project, 2)
    big = sendable(project, 99, "proj.succeed")
    body = b'[["%s"], {}, {}]' % (b"x" * 800_000)
    big = replace(big, envelope=replace(big.envelope, body=body))
    project.dlq.store.letters.save([big])
    ended = project.dlq.redrives.start(Filter(queue=project.queue), who="tester")
    assert (ended.state, ended.counts.out, ended.counts.skipped) == (OperationState.DONE, 2, 1)
    assert project.letter(big.task_id).state is State.DEAD
    done = project.run("dlq", "redrive", big.task_id, "--yes")
    assert "Message must be shorter than 1048576 bytes" in done.stdout + done.stderr
    with project.worker("--pool", "solo"):
        wait_for("the others", lambda: in_state(project, State.RESOLVED) == 2)
