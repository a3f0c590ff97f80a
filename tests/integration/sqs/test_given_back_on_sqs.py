"""How soon the messages of a killed worker are back in their queue on Amazon SQS."""

from __future__ import annotations

import time
from statistics import median

import pytest
from killed import KILLS, kill, worker
from project import wait_for
from sqs_project import SQSProject

from celery_dlq.redrive.broker.queues import Depth

pytestmark = [
    pytest.mark.slow, pytest.mark.service, pytest.mark.nightly, pytest.mark.timeout(60 + 30 * KILLS),
    # boto3 leaves connections to the collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]  # fmt: skip

#: Messages in each worker: one runs, and the others wait.
HELD = 5
#: Seconds after which they would come back without this package.
HIDDEN_S = 600
#: Seconds within which they come back.
SOON_S = 10.0


def test_they_come_back_soon(project: SQSProject):
    project.module, project.settings["task_acks_late"] = "proj_recorded", True
    project.transport(visibility_timeout=HIDDEN_S)
    project.make_queue(VisibilityTimeout=str(HIDDEN_S))
    took_s = []
    # It gives messages back, and takes none itself.
    with project.worker("--pool", "solo", "-Q", f"{project.queue}-idle"):
        for number in range(KILLS):
            for _ in range(HELD):
                project.app.send_task("proj.noted", (number, HIDDEN_S))
            with worker(project, "-c", "1", "--prefetch-multiplier", str(HELD)) as killed:
                wait_for("them to be received", lambda: project.depths() == Depth(0, HELD))
                began = f"began {number} "
                wait_for(
                    "one to run", lambda began=began: began in "\n".join(project.lines("notes"))
                )
                kill(killed)
                at = time.monotonic()
                wait_for("them to be back", lambda: project.depths() == Depth(HELD, 0))
                took_s.append(time.monotonic() - at)
            project.purge()
    print(
        f"\n{KILLS} kills: back after {median(took_s):.2f} s (median), {max(took_s):.2f} s (longest)"
    )
    assert median(took_s) < SOON_S
