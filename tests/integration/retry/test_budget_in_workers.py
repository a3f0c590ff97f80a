"""A storm: every message fails for now. The retry budget bounds the calls, and the letters come back."""

import pytest
from project import wait_for

from celery_dlq.model.states import Reason, State, Verdict

pytestmark = [pytest.mark.slow, pytest.mark.service]

POOLS = {"prefork": ("-P", "prefork", "-c", "2"), "threads": ("-P", "threads", "-c", "4")}
OFFERED = 60


@pytest.mark.parametrize("pool", POOLS)
def test_retries_stay_within_the_budget_and_the_storms_letters_are_redriven(project, pool):
    # Without a floor the bound holds however long the machine takes.
    project.settings.update(dlq_retry_budget=0.2, dlq_retry_budget_floor=0)
    sent = [project.send("exhausted", number) for number in range(OFFERED)]
    with project.worker(*POOLS[pool]):
        letters = [project.wait_for_letter(task_id) for task_id in sent]
        retries = sum(len(letter.attempts) - 1 for letter in letters)
        assert 0 < retries <= 0.2 * OFFERED
        over = [letter for letter in letters if letter.reason is Reason.BUDGET]
        assert len(over) > OFFERED / 2
        assert {letter.verdict for letter in over} == {Verdict.TRANSIENT}

        project.fixed.touch()
        done = project.run(
            "dlq", "redrive", "--reason", "budget", "--queue", project.queue, "--yes"
        )
        assert done.returncode == 0, done.stderr
        wait_for(
            "the redriven to succeed", lambda: project.count(states={State.RESOLVED}) == len(over)
        )
    assert project.count(reason=Reason.BUDGET, states={State.DEAD}) == 0


def test_without_a_budget_every_attempt_is_made(project):
    sent = [project.send("exhausted", number) for number in range(10)]
    with project.worker("-c", "2"):
        letters = [project.wait_for_letter(task_id) for task_id in sent]
    assert {(letter.reason, len(letter.attempts)) for letter in letters} == {(Reason.EXHAUSTED, 3)}
