"""Celery's signals in one worker: which of them fires, how often, and with which id, for each way that a
message may go. The guide to adoption has the table."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from celery import signals
from project import Project, wait_for

from celery_dlq import DLQTask, Filter, State

pytestmark = [pytest.mark.slow, pytest.mark.service]

GUIDE = Path(__file__).parents[3] / "docs" / "howto" / "adopt-in-an-existing-project.md"

#: The columns of the table, in its order.
WAYS = ("success", "retry", "parked", "letter", "redrive", "given back")

Heard = dict[str, Counter[str]]


@pytest.fixture(scope="module")
def project(tmp_path_factory, redis_url):
    directory = tmp_path_factory.mktemp("signals")
    project = Project(
        directory, f"{redis_url}/9", f"sqlite:///{directory}/store.sqlite3", module="proj_signals",
        environ={"PROJ_PARK_AFTER_S": "0.3"},
    )  # fmt: skip
    project.app.task(_body, base=DLQTask, name="proj.goes", shared=False, lazy=False)
    try:
        with project.worker("-c", "1"):
            yield project
    finally:
        project.close()


def _body(way: str) -> None:
    raise AssertionError("runs in a worker only")


@pytest.fixture(scope="module")
def heard(project) -> Heard:
    """How often each signal fired in the worker; and, for a redrive, in the process that sent it."""
    ids = {"parked": project.send("goes", "parked")}
    wait_for("the retry to be parked", lambda: project.parked() == 1)
    ids |= {way: project.send("goes", way) for way in WAYS if way not in ("parked", "redrive")}
    ids["unknown"] = project.send("unknown")
    ids["expired"] = project.app.send_task("proj.goes", ("success",), expires=-1).id
    for way in ("success", "retry", "parked", "given back"):
        wait_for(way, lambda way=way: signals_of(project, ids[way])["task_success"])
        wait_for(way, lambda way=way: runs_have_ended(signals_of(project, ids[way])))
    for way in ("letter", "unknown"):
        project.wait_for_letter(ids[way])
    wait_for("the end of the expired one", lambda: signals_of(project, ids["expired"]))
    found = {way: signals_of(project, task_id) for way, task_id in ids.items()}
    return {**found, "redrive": redriven(project, ids["letter"]) - found["letter"]}


def redriven(project: Project, task_id: str) -> Counter[str]:
    """The signals of a letter that was sent back, and of its failure."""
    here: list[object] = []

    def receive(**given: object) -> None:
        here.append(given)

    project.fixed.touch()
    for signal in (signals.before_task_publish, signals.after_task_publish):
        signal.connect(receive)
    try:
        project.dlq.redrives.start(Filter(ids=(task_id,)), who="tester")
    finally:
        for signal in (signals.before_task_publish, signals.after_task_publish):
            signal.disconnect(receive)
    assert here == []
    project.wait_for_letter(task_id, State.RESOLVED)
    wait_for("the redrive", lambda: signals_of(project, task_id)["task_success"])
    wait_for("the redrive", lambda: runs_have_ended(signals_of(project, task_id)))
    return signals_of(project, task_id)


def signals_of(project: Project, task_id: str) -> Counter[str]:
    lines = (line.rpartition(" ") for line in project.lines("signals"))
    return Counter(name for one, _, name in lines if one == task_id)


def runs_have_ended(signals: Counter[str]) -> bool:
    return signals["task_postrun"] == signals["task_prerun"]


def rows() -> dict[str, list[int]]:
    """The table: how often each signal fires, by its name."""
    section = GUIDE.read_text().partition("### Signals\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (.*) \|$", section, re.MULTILINE)
    return {
        name: [int(cell) for cell in cells.split(" | ")]
        for names, cells in found
        for name in re.findall(r"`(\w+)`", names)
    }


@pytest.mark.parametrize(
    "signal",
    [
        "before_task_publish", "after_task_publish", "task_received", "task_prerun", "task_postrun",
        "task_retry", "task_success", "task_failure", "task_internal_error", "task_revoked",
        "task_unknown", "task_rejected",
    ],
)  # fmt: skip
def test_each_signal_fires_as_often_as_the_guide_says(heard, signal):
    """Always with the id of the first message."""
    assert [heard[way][signal] for way in WAYS] == rows()[signal]


def test_messages_that_no_task_runs_fire_one_signal(heard):
    assert heard["unknown"] == Counter(["task_unknown"])
    assert heard["expired"] == Counter(["task_revoked"])
