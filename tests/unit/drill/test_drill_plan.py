"""What the processes of a drill share."""

import os
import stat

import pytest

from celery_dlq.drill.process import Plan, Runs


@pytest.fixture
def plan(tmp_path):
    return Plan(
        app="shop", queue="celery_dlq_drill_1", exchange_type="direct", queue_arguments={},
        directory=str(tmp_path), broker_url="redis://:secret@db/0", transport_options={"a": 1},
        store_url="sqlite:///x", spool_dir="spool", recorder_dir="recorder", pool=None,
    )  # fmt: skip


def test_it_is_read_as_it_was_written_and_only_by_its_owner(plan, tmp_path):
    plan.write()
    assert Plan.read(str(tmp_path)) == plan
    assert stat.S_IMODE((tmp_path / "plan.json").stat().st_mode) == 0o600


def test_runs_are_counted_for_each_message(plan):
    assert plan.runs.pids(Runs.STARTED, "one") == []
    plan.runs.note(Runs.STARTED, "one")
    plan.runs.note(Runs.STARTED, "two")
    plan.runs.note(Runs.FINISHED, "one")
    plan.runs.note(Runs.READY)
    assert plan.runs.pids(Runs.STARTED, "one") == [os.getpid()]
    assert plan.runs.pids(Runs.FINISHED, "two") == []
    assert plan.runs.pids(Runs.READY) == [os.getpid()]
