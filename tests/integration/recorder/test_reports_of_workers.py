"""A real worker reports what it cannot recover or copy, and withdraws the report when it is over."""

from __future__ import annotations

import json
import shutil

import pytest
from project import Project, wait_for

from celery_dlq.model.worker import RecorderReport, ReportKind

pytestmark = [pytest.mark.slow, pytest.mark.service]


@pytest.fixture
def project(make_project, urls_of):
    return make_project(*urls_of("redis-postgres"), module="proj_reporting")


def reports(project: Project) -> tuple[RecorderReport, ...]:
    store = project.dlq.store
    return store.recorder_reports.look(store.now()).reports


def reports_of(project: Project, kind: ReportKind) -> list[RecorderReport]:
    return [one for one in reports(project) if one.kind is kind]


def test_a_worker_reports_its_trouble_while_it_lasts(project):
    recorder = project.directory / "spool" / "recorder"
    (recorder / "gone-7-0123456789ab" / "1.rec").mkdir(parents=True)
    with project.worker("--pool", "solo"):
        [stuck] = wait_for("a report", lambda: reports_of(project, ReportKind.STUCK))
        assert stuck.about == "gone-7-0123456789ab"
        assert "IsADirectoryError" in stuck.why

        # Now no message can be copied.
        shutil.rmtree(recorder)
        recorder.touch()
        project.send("noted", 1, 0)
        [uncovered] = wait_for("the next report", lambda: reports_of(project, ReportKind.UNCOVERED))
        assert (uncovered.worker.split("@")[1], uncovered.messages) == (uncovered.host, 1)
        wait_for("the report to be withdrawn", lambda: reports(project) == (uncovered,))

        shown = json.loads(project.run("dlq", "stats", "--format", "json", check=True).stdout)
        assert [one["kind"] for one in shown["recorder"]["reports"]] == ["uncovered"]
        assert shown["recorder"]["here"] is None
    assert reports(project) == ()
