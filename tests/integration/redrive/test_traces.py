"""A task fails, is retried, dies, is redriven, dies again, is redriven again, and succeeds: its traces, as
OpenTelemetry and Sentry export them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from project import Project, wait_for

from celery_dlq import DeadLetter, State

pytestmark = [pytest.mark.slow, pytest.mark.service]

PAGE = "https://jaeger.example/trace/{trace_id}"


@dataclass
class Watched:
    """The letter of a task after its death and after each redrive, and what was exported."""

    project: Project
    letters: list[DeadLetter]
    shown: dict[str, Any]
    screen: str
    spans: list[dict[str, Any]]
    envelopes: list[dict[str, Any]]

    @property
    def id(self) -> str:
        return self.letters[0].task_id

    def named(self, name: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["name"] == name]

    @property
    def runs(self) -> list[dict[str, Any]]:
        return self.named("run/proj.traced")

    @property
    def redrives(self) -> list[dict[str, Any]]:
        return self.named(f"redrive {self.project.queue}")


@pytest.fixture(
    scope="module", params=["link", pytest.param("continue", marks=pytest.mark.nightly)]
)
def watched(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, redis_url: str
) -> Iterator[Watched]:
    directory = tmp_path_factory.mktemp("traces")
    store_url = f"sqlite:///{directory}/store.sqlite3"
    project = Project(directory, f"{redis_url}/9", store_url, module="proj_traces")
    project.settings = {"dlq_redrive_trace": request.param, "dlq_trace_url": PAGE}
    project.app.conf.update(project.settings)
    try:
        yield _watched(project, directory)
    finally:
        project.close()


def _watched(project: Project, directory: Path) -> Watched:
    with project.worker("-c", "1"):
        task_id = subprocess.run(
            [sys.executable, "-m", "proj_traces"],
            env=project.environment, cwd=directory, capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        letters = [project.wait_for_letter(task_id)]
        failed = project.run("dlq", "redrive", task_id, "--yes")
        assert "1 failed again" in failed.stderr
        letters.append(project.wait_for_letter(task_id))
        shown = json.loads(project.invoke("show", task_id, "--format", "json").stdout)
        screen = project.invoke("show", task_id).stdout
        project.fixed.touch()
        done = project.run("dlq", "redrive", task_id, "--yes")
        assert done.returncode == 0, done.stderr
        letters.append(project.wait_for_letter(task_id, State.RESOLVED))
        wait_for("the last run", lambda: len(_lines(project, "spans", "run/proj.traced")) == 5)
    spans, envelopes = (list(map(json.loads, project.lines(n))) for n in ("spans", "envelopes"))
    return Watched(project, letters, shown, screen, spans, envelopes)


def _lines(project: Project, name: str, part: str) -> list[str]:
    return [line for line in project.lines(name) if part in line]


def trace_of(span: dict[str, Any]) -> str:
    return span["context"]["trace_id"]


def is_link(watched: Watched) -> bool:
    return watched.project.settings["dlq_redrive_trace"] == "link"


def test_each_redrive_has_a_producer_span_by_the_semantic_conventions(watched: Watched) -> None:
    first, second = watched.redrives
    assert [first["kind"], second["kind"]] == ["SpanKind.PRODUCER"] * 2
    operations = {first["attributes"].pop("celery_dlq.operation") for _ in "1"}
    assert len(operations) == 1
    assert first["attributes"] == {
        "messaging.system": "redis",
        "messaging.operation.name": "redrive",
        "messaging.operation.type": "send",
        "messaging.destination.name": watched.project.queue,
        "messaging.message.id": watched.id,
        "messaging.message.body.size": len(watched.letters[0].envelope.body),
        "celery.task_name": "proj.traced",
        "celery_dlq.letter": watched.id,
        "celery_dlq.group": watched.letters[0].fingerprint,
        "celery_dlq.redrive": 1,
    }
    assert second["attributes"]["celery_dlq.redrive"] == 2


def test_a_redrive_is_linked_to_the_run_that_failed_or_continues_its_trace(
    watched: Watched,
) -> None:
    [checkout] = watched.named("checkout")
    first, second = watched.redrives
    original = trace_of(checkout)
    assert [trace_of(run) for run in watched.runs] == (
        [original] * 2 + [trace_of(first)] * 2 + [trace_of(second)]
    )
    if is_link(watched):
        assert len({original, trace_of(first), trace_of(second)}) == 3
        # The store keeps the message that died first.
        died = {"trace_id": original, "span_id": watched.runs[1]["parent_id"]}
        for redrive in watched.redrives:
            [link] = redrive["links"]
            assert died.items() <= link["context"].items()
            assert redrive["parent_id"] is None
    else:
        assert {trace_of(first), trace_of(second)} == {original}
        assert first["links"] == []
        # The span that sent the last attempt.
        assert first["parent_id"] == watched.runs[1]["parent_id"]
    assert watched.runs[2]["parent_id"] == first["context"]["span_id"]
    assert watched.runs[4]["parent_id"] == second["context"]["span_id"]


def test_runs_have_their_retry_or_their_letter_as_an_event(watched: Watched) -> None:
    found = []
    for run in watched.runs:
        own = [event for event in run["events"] if event["name"].startswith("celery_dlq.")]
        found.append([(event["name"], event["attributes"]) for event in own])
    group = watched.letters[0].fingerprint
    rule = {"celery_dlq.verdict": "transient", "celery_dlq.rule": watched.letters[0].rule}
    for number, redrive in ((0, {}), (2, {"celery_dlq.redrive": 1})):
        [(name, retried)], [(last, died)] = found[number], found[number + 1]
        assert name == "celery_dlq.retry"
        assert 0 <= retried.pop("celery_dlq.delay") <= 0.1
        assert retried == {**rule, **redrive, "celery_dlq.attempt": 1}
        assert last == "celery_dlq.letter"
        assert died == {
            **rule, **redrive, "celery_dlq.attempt": 2, "celery_dlq.letter": watched.id,
            "celery_dlq.group": group, "celery_dlq.reason": "exhausted",
        }  # fmt: skip
    assert found[4] == []
    named = {"celery_dlq.letter": watched.id, "celery_dlq.group": group, "celery_dlq.redrive": 2}
    assert named.items() <= watched.runs[4]["attributes"].items()


def test_letters_show_their_trace(watched: Watched) -> None:
    [checkout] = watched.named("checkout")
    assert watched.shown["trace_id"] == trace_of(checkout).removeprefix("0x")
    assert watched.shown["trace_url"] == PAGE.format(trace_id=watched.shown["trace_id"])
    assert watched.shown["trace_url"] in watched.screen


def test_the_body_knows_its_letter_its_redrive_and_its_attempt(watched: Watched) -> None:
    runs = [json.loads(line) for line in watched.project.lines("runs")]
    own = watched.id
    assert runs == [[None, 0, 1], [None, 0, 2], [own, 1, 1], [own, 1, 2], [own, 2, 1]]


def test_a_redrive_that_failed_has_its_own_attempts_only(watched: Watched) -> None:
    """Sentry sends a header named headers, which a task sees in the place of all others."""
    attempts = [(one.redrive, one.number) for one in watched.letters[1].attempts]
    assert attempts[-2:] == [(1, 1), (1, 2)]
    assert len(watched.letters[1].attempts) == 4


def test_sentry_keeps_the_trace_and_has_tags(watched: Watched) -> None:
    runs = [one for one in watched.envelopes if one.get("transaction") == "proj.traced"]
    done = [one for one in runs if one["type"] == "transaction"]
    failed = [one for one in runs if one["type"] == "event"]
    assert [one["contexts"]["trace"]["status"] for one in done] == [
        "aborted", "internal_error", "aborted", "internal_error", "ok",
    ]  # fmt: skip
    assert len({one["contexts"]["trace"]["trace_id"] for one in runs}) == 1
    own = {"dlq.letter": watched.id, "dlq.group": watched.letters[0].fingerprint}
    tags = [{name: v for name, v in one["tags"].items() if "dlq" in name} for one in done]
    assert tags == [{}, own, *({**own, "dlq.redrive": number} for number in ("1", "1", "2"))]
    assert [one["tags"].get("dlq.redrive") for one in failed] == [None, "1"]
    assert {one["tags"]["dlq.letter"] for one in failed} == {watched.id}


def test_sentry_counts_the_time_since_the_redrive(watched: Watched) -> None:
    done = [one for one in watched.envelopes if one.get("transaction") == "proj.traced"]
    redriven = [one for one in done if one["type"] == "transaction"][2]
    [latency_ms] = [
        span["data"]["messaging.message.receive.latency"]
        for span in redriven["spans"] if span["op"] == "queue.process"
    ]  # fmt: skip
    began = datetime.fromisoformat(redriven["start_timestamp"].replace("Z", "+00:00"))
    assert latency_ms > 0
    # Not since it was sent first, which was before it died.
    assert began - timedelta(milliseconds=latency_ms) > watched.letters[0].last_failed_at
