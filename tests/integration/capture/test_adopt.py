"""An existing project on DLQTask: its own base classes, retries, locks and monitors do what the guide
says. Each app has one worker for all tests."""

from __future__ import annotations

import http.server
import json
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from project import Project, wait_for
from queues import redis_options

from celery_dlq import DeadLetter, DLQTask, Filter, Reason, State

pytestmark = [pytest.mark.slow, pytest.mark.service]


class Away(http.server.BaseHTTPRequestHandler):
    """A service that is down: status 503, or 500 if the path says so."""

    def do_GET(self):
        self.server.hits[self.path.strip("/")] += 1
        self.send_response(500 if "500" in self.path else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def service() -> Iterator[http.server.ThreadingHTTPServer]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Away) as server:
        server.hits = Counter()
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


@contextmanager
def project_of(module: str, directory: Path, redis_url: str) -> Iterator[Project]:
    """A project for this file. The app in the test's process knows its tasks, too."""
    broker = f"{redis_url}/9"
    project = Project(
        directory, broker, f"sqlite:///{directory}/store.sqlite3", backend=broker, module=module
    )
    # The default number of attempts, because the guide names figures.
    project.settings = {"dlq_max_attempts": 9}
    try:
        yield project
    finally:
        project.close()


def records(project: Project, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in project.lines(name)]


def produce(project: Project, name: str, *args: object) -> str:
    """Let a worker send the task ``name`` by its own ``apply_async()``; returns the id."""
    before = len(project.lines("produced"))
    project.send("produce", f"proj.{name}", *args)
    wait_for(f"{name} to be sent", lambda: len(project.lines("produced")) > before)
    return project.lines("produced")[-1].split()[1]


def redrive(project: Project, *task_ids: str) -> set[int]:
    """Deploy the fix, send the letters back, wait for their success, and return how often each was sent."""
    project.fixed.touch()
    for task_id in task_ids:
        letter = project.letter(task_id)
        assert letter is not None
        if letter.task not in project.app.tasks:
            project.app.task(name=letter.task, base=DLQTask, shared=False)(_not_here)
    operation = project.dlq.redrives.start(Filter(ids=task_ids), who="tester")
    counts = operation.counts
    assert (counts.planned, counts.skipped) == (len(task_ids), 0), counts
    return {project.wait_for_letter(one, State.RESOLVED).redrive_count for one in task_ids}


def _not_here(*args: object, **kwargs: object) -> None:
    raise AssertionError("runs in a worker only")


FAILING = (
    "journal", "journal_terminal", "raising", "context_behind", "context_before", "opening",
    "opening_behind", "noting", "tenacious", "tenacious_raises", "tenacious_once",
    "tenacious_terminal", "session", "session_status", "session_500", "no_retries", "autoretry",
    "autoretry_other", "switched",
)  # fmt: skip

LOCKING = ("single", "single_retried", "single_terminal", "once")


@dataclass
class Adopted:
    """The project after a worker has run all kinds of tasks."""

    project: Project
    ids: dict[str, str]
    letters: dict[str, DeadLetter]
    hits: Counter[str]
    again: dict[str, str]
    calls: Counter[str]
    journals: dict[str, list[str]]


def journal(project: Project, task_id: str) -> list[str]:
    """The handlers that were called for a task, in order."""
    own = [line.partition(" ") for line in project.lines("journal")]
    return [what for one, _, what in own if one == task_id]


@pytest.fixture(scope="module")
def adopted(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, service: Any
) -> Iterator[Adopted]:
    directory = tmp_path_factory.mktemp("adopt")
    with project_of("proj_adopt", directory, redis_url) as project:
        project.environ = {"ADOPT_URL": f"http://127.0.0.1:{service.server_port}"}
        with project.worker("-c", "2"):
            ids = {name: project.send(name) for name in (*FAILING, "plain_request")}
            for name in LOCKING:
                ids[name] = produce(project, name, 1)
            letters = {
                name: project.wait_for_letter(task_id)
                for name, task_id in ids.items()
                if name != "plain_request"
            }
            wait_for("the result", project.app.AsyncResult(ids["plain_request"]).ready)
            again = {name: produce(project, name, 1) for name in LOCKING}
            for task_id in again.values():
                project.wait_for_letter(task_id)
            ids["waiting"] = project.send("waiting")
            wait_for("its first run", lambda: project.lines("waiting"))
        yield Adopted(
            project, ids, letters, service.hits, again,
            calls=Counter(project.lines("calls")),
            journals={name: journal(project, ids[name]) for name in ("journal", "journal_terminal")},
        )  # fmt: skip


class TestBaseClasses:
    def test_handlers_of_a_mixin_are_called_as_celery_calls_them(self, adopted: Adopted) -> None:
        assert adopted.journals["journal"] == [
            *["retry ConnectionError"] * 8, "failure ConnectionError", "return FAILURE",
        ]  # fmt: skip
        assert adopted.journals["journal_terminal"] == ["failure ValueError", "return FAILURE"]

    def test_a_handler_that_raises_costs_no_letter(self, adopted: Adopted) -> None:
        letter = adopted.letters["raising"]
        assert (letter.exception_type, letter.reason) == ("ValueError", Reason.TERMINAL)

    def test_a_call_without_super_belongs_after_dlqtask(self, adopted: Adopted) -> None:
        contexts = Counter(adopted.project.lines("contexts"))
        assert contexts == {"proj.context_behind": 9, "proj.context_before": 1}
        assert len(adopted.letters["context_behind"].attempts) == 9
        # Before DLQTask in the order of bases, its failures become letters, and nothing is retried.
        assert len(adopted.letters["context_before"].attempts) == 1

    def test_an_error_outside_of_dlqtasks_call_is_not_retried(self, adopted: Adopted) -> None:
        assert len(adopted.letters["opening"].attempts) == 1
        assert len(adopted.letters["opening_behind"].attempts) == 9

    def test_a_request_class_is_derived_from_dlqrequest(self, adopted: Adopted) -> None:
        assert adopted.letters["noting"].reason is Reason.TERMINAL
        assert adopted.project.lines("accepted") == [adopted.ids["noting"]]


class TestRetriesOfLibraries:
    def test_tenacity_multiplies(self, adopted: Adopted) -> None:
        assert adopted.calls["tenacious"] == adopted.calls["tenacious_raises"] == 9 * 3
        assert adopted.calls["tenacious_once"] == 3

    def test_the_cause_of_tenacitys_error_decides(self, adopted: Adopted) -> None:
        letter = adopted.letters["tenacious"]
        assert (letter.exception_type, letter.reason) == ("tenacity.RetryError", Reason.EXHAUSTED)
        assert adopted.letters["tenacious_raises"].exception_type == "ConnectionError"
        assert adopted.letters["tenacious_terminal"].reason is Reason.TERMINAL
        assert adopted.calls["tenacious_terminal"] == 3

    def test_retries_of_a_requests_session_multiply(self, adopted: Adopted) -> None:
        assert adopted.hits == {
            "session": 9 * 4, "session_status": 9 * 4, "session_500": 4, "no_retries": 9,
        }  # fmt: skip
        assert adopted.letters["session_500"].reason is Reason.TERMINAL
        assert adopted.letters["session_500"].rule == "http.retries"

    def test_autoretry_for_adds_transient_errors(self, adopted: Adopted) -> None:
        letter = adopted.letters["autoretry"]
        assert (len(letter.attempts), letter.rule) == (2, "task.autoretry_for")
        assert len(adopted.letters["autoretry_other"].attempts) == 2
        assert adopted.letters["autoretry_other"].rule == "os.network"


class TestLocks:
    def test_retries_pass_the_lock_of_celery_once(self, adopted: Adopted) -> None:
        assert len(adopted.letters["once"].attempts) == 9

    def test_a_retry_that_celery_singleton_keeps_back_is_a_letter(self, adopted: Adopted) -> None:
        letter = adopted.letters["single"]
        assert (len(letter.attempts), letter.reason) == (1, Reason.REJECTED)
        assert letter.exception_type == "ConnectionError"
        assert "own apply_async() did not send it" in letter.explanation.evidence

    def test_retries_of_a_singleton_pass_its_lock_with_the_guides_override(
        self, adopted: Adopted
    ) -> None:
        assert len(adopted.letters["single_retried"].attempts) == 9

    def test_an_open_letter_holds_no_lock(self, adopted: Adopted) -> None:
        first = {adopted.ids[name] for name in adopted.again}
        assert first.isdisjoint(adopted.again.values())
        with redis.Redis.from_url(adopted.project.broker) as client:
            # A worker that runs for other tests of this module uses those of Celery's transport.
            of_celery = set(redis_options(adopted.project.queue).values())
            found = {key.decode() for key in client.keys(f"{adopted.project.queue}-*")}
            assert found <= of_celery
            assert client.keys("qo_proj.once*") == []


@pytest.fixture(scope="module")
def rolled_back(adopted: Adopted) -> Iterator[Project]:
    """The project with the fix deployed, and two of its tasks on Celery's own base class again."""
    project = adopted.project
    project.fixed.touch()
    project.environ["ADOPT_ROLLED_BACK"] = "1"
    with project.worker("-c", "1"):
        yield project


class TestRedrive:
    def test_takes_no_lock_and_meets_none(self, rolled_back: Project, adopted: Adopted) -> None:
        names = ("single_terminal", "once")
        first = redrive(rolled_back, *(adopted.ids[name] for name in names))
        # The same calls, made while the first ones were letters.
        second = redrive(rolled_back, *(adopted.again[name] for name in names))
        assert first == second == {1}

    def test_calls_the_handlers_again(self, rolled_back: Project, adopted: Adopted) -> None:
        task_id = adopted.ids["journal"]
        redrive(rolled_back, task_id)
        wait_for("the handlers", lambda: "return SUCCESS" in journal(rolled_back, task_id))
        added = ["success", "return SUCCESS"]
        assert journal(rolled_back, task_id) == [*adopted.journals["journal"], *added]


class TestRollback:
    def test_a_retry_that_was_in_flight_runs_with_our_headers_unread(
        self, rolled_back: Project
    ) -> None:
        wait_for("its second run", lambda: len(rolled_back.lines("waiting")) > 1)
        assert rolled_back.lines("waiting")[:2] == ["0 ", "1 x-dlq-attempts"]

    def test_an_open_letter_can_be_redriven_and_is_closed_by_hand(
        self, rolled_back: Project, adopted: Adopted
    ) -> None:
        task_id = adopted.ids["switched"]
        assert rolled_back.run("dlq", "redrive", task_id, "--yes").returncode == 0
        wait_for("the result", lambda: rolled_back.app.AsyncResult(task_id).successful())
        letter = rolled_back.letter(task_id)
        assert letter is not None
        assert letter.state is State.REDRIVEN
        done = rolled_back.run(
            "dlq",
            "discard",
            task_id,
            "--state",
            "redriven",
            "--why",
            "it ran on the old base",
            "--yes",
        )
        assert done.returncode == 0, done.stderr
        rolled_back.wait_for_letter(task_id, State.DISCARDED)


@pytest.fixture(scope="module")
def watched(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str
) -> Iterator[tuple[Project, dict[str, str]]]:
    directory = tmp_path_factory.mktemp("watched")
    with project_of("proj_telemetry", directory, redis_url) as project:
        with project.worker("-c", "2"):
            ids = {name: produce(project, name) for name in ("watched", "watched_terminal")}
            ids["watched_recovers"] = produce(project, "watched_recovers")
            project.wait_for_letter(ids["watched"])
            project.wait_for_letter(ids["watched_terminal"])
            before = len(records(project, "spans"))
            redrive(project, ids["watched"])
            wait_for("the span", lambda: len(records(project, "spans")) > before)
        yield project, ids


class TestMonitors:
    def test_sentry_gets_one_event_when_a_task_is_dead(self, watched: Any) -> None:
        project, _ = watched
        sent = sorted((event["task"], event["type"]) for event in records(project, "sentry"))
        assert sent == [
            ("proj.watched", "ConnectionError"), ("proj.watched_terminal", "ValueError"),
        ]  # fmt: skip

    def test_its_trace_continues_through_retries_and_a_redrive(self, watched: Any) -> None:
        project, _ = watched
        runs = [found for found in records(project, "transactions") if "watched" in found["name"]]
        of_one = [found for found in runs if found["name"] == "proj.watched"]
        assert [found["status"] for found in of_one] == [*["aborted"] * 8, "internal_error", "ok"]
        assert len({found["trace"] for found in of_one}) == 1

    def test_the_trace_of_opentelemetry_continues(self, watched: Any) -> None:
        project, _ = watched
        spans = [found for found in records(project, "spans") if "proj.watched" in found["name"]]
        own = [found for found in spans if found["name"].endswith("/proj.watched")]
        runs = [found for found in own if found["name"].startswith("run/")]
        assert [found["status"] for found in runs] == [*["UNSET"] * 8, "ERROR", "UNSET"]
        assert len({found["trace"] for found in own}) == 1
        # A redrive sends the message of the last attempt: the two runs have one parent.
        assert runs[-1]["parent"] == runs[-2]["parent"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Iterator[tuple[Project, str]]:
    for name in ("django", "django_celery_beat", "django_celery_results"):
        pytest.importorskip(name)
    directory = tmp_path_factory.mktemp("site")
    with project_of("proj_django", directory, redis_url) as project:
        project.environ = {
            "DJANGO_SETTINGS_MODULE": "proj_django_settings",
            "PROJ_BACKEND": "django-db",
            "PROJ_DJANGO": str(directory / "django.sqlite3"),
        }
        made = subprocess.run(
            [sys.executable, "-m", "proj_django_settings"],
            env=project.environment, cwd=directory, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        scheduler = "django_celery_beat.schedulers:DatabaseScheduler"
        with project.worker("-c", "1", "-B", "--scheduler", scheduler):
            wait_for("a letter", lambda: project.count() == 1)
            [letter] = project.dlq.store.letters.find(Filter(queue=project.queue)).letters
            letter = project.letter(letter.task_id)
            failed = result_of(directory, letter.task_id)
            redrive(project, letter.task_id)
            wait_for("the result", lambda: result_of(directory, letter.task_id) != failed)
        yield project, failed, result_of(directory, letter.task_id), letter


class TestDjango:
    def test_a_periodic_task_of_django_celery_beat_becomes_a_letter(self, site: Any) -> None:
        *_, letter = site
        assert len(letter.attempts) == 9
        assert letter.envelope.headers["periodic_task_name"] == "every second"

    def test_a_result_of_django_celery_results_follows_the_letter(self, site: Any) -> None:
        _, failed, after, _ = site
        assert (failed, after) == ("FAILURE", "SUCCESS")


def result_of(directory: Path, task_id: str) -> str:
    with closing(sqlite3.connect(directory / "django.sqlite3", timeout=30)) as database:
        query = "SELECT status FROM django_celery_results_taskresult WHERE task_id = ?"
        [(status,)] = database.execute(query, (task_id,)).fetchall() or [("",)]
    return str(status)
