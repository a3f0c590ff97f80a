"""A real worker reports what it cannot recover or copy, and withdraws the report when it is over."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path

import pytest
from project import Project, wait_for

from celery_dlq.model.worker import RecorderReport, ReportKind
from celery_dlq.recorder.segment import FORMAT

pytestmark = [pytest.mark.slow, pytest.mark.service]


@pytest.fixture
def project(make_project, urls_of):
    return make_project(*urls_of("redis-postgres"), module="proj_reporting")


def reports(project: Project) -> tuple[RecorderReport, ...]:
    store = project.dlq.store
    return store.recorder_reports.look(store.now()).reports


def reports_of(project: Project, kind: ReportKind) -> list[RecorderReport]:
    return [one for one in reports(project) if one.kind is kind]


def leave_files_of_a_newer_release(directory: Path) -> None:
    """As a killed worker leaves them before its release is rolled back."""
    directory.mkdir(parents=True)
    named = b"celery_dlq recorder\n" + (FORMAT + 1).to_bytes(4, "little")
    header = named + zlib.crc32(named).to_bytes(4, "little")
    (directory / "1.rec").write_bytes(header.ljust(4_096, b"x"))


def test_a_worker_reports_its_trouble_while_it_lasts(project):
    recorder = project.directory / "spool" / "recorder"
    leave_files_of_a_newer_release(recorder / "gone-7-0123456789ab")
    with project.worker("--pool", "solo"):
        [stuck] = wait_for("a report", lambda: reports_of(project, ReportKind.STUCK))
        assert stuck.about == "gone-7-0123456789ab"
        assert "upgrade celery-dlq" in stuck.why

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
