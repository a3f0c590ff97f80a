"""Runs as OpenTelemetry and Sentry see them. Celery's own tracer runs the tasks in one process."""

import builtins
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from celery.app.trace import build_tracer, setup_worker_optimizations
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from celery_dlq import DLQTask
from celery_dlq.model.headers import GROUP_HEADER, LETTER_HEADER, REDRIVE_HEADER
from celery_dlq.worker.body.report import reported

REDRIVEN = {REDRIVE_HEADER: 2, GROUP_HEADER: "9c1e"}
DIED = {"celery_dlq.reason": "terminal", "celery_dlq.verdict": "terminal", "celery_dlq.attempt": 1}


class Watched:
    """A run in a span of the program, with Sentry's scope."""

    def __init__(self, tags=None, exporter=None):
        self.tags, self._exporter = tags, exporter

    def run(self, task, *args, headers=REDRIVEN, retries=0):
        setup_worker_optimizations(task.app)
        request = {
            "id": "4711", "task": task.name, "retries": retries, "is_eager": False, "hostname": "h",
            "delivery_info": {"exchange": "", "routing_key": "celery"}, **(headers or {}),
        }  # fmt: skip
        task.__trace__ = build_tracer(task.name, task, app=task.app)
        is_open = self._exporter is not None
        own = trace.get_tracer("t").start_as_current_span("run") if is_open else nullcontext()
        with own:
            return task.__trace__("4711", list(args), {}, request)

    @property
    def span(self):
        return self._exporter.get_finished_spans()[-1]

    @property
    def events(self):
        return [(event.name, dict(event.attributes)) for event in self.span.events]


@pytest.fixture
def exporter(monkeypatch):
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


@pytest.fixture
def sentry(monkeypatch):
    """Stands for Sentry's SDK; returns the tags of the scope."""

    def make(integrations=("celery",)):
        tags = {}
        scope = SimpleNamespace(set_tag=tags.__setitem__)
        client = SimpleNamespace(
            get_integration=lambda name: name if name in integrations else None
        )
        fake = SimpleNamespace(get_client=lambda: client, get_isolation_scope=lambda: scope)
        monkeypatch.setitem(sys.modules, "sentry_sdk", fake)
        return tags

    return make


@pytest.fixture
def watched(exporter, sentry):
    return Watched(sentry(), exporter)


@pytest.fixture
def charge(app):
    @app.task(base=DLQTask, name="shop.charge")
    def charge(error=None):
        if error is not None:
            raise getattr(builtins, error)("bad currency")

    app.finalize()
    return charge


def test_the_run_of_a_redriven_message_names_its_letter(watched, charge):
    watched.run(charge)
    assert dict(watched.span.attributes) == {
        "celery_dlq.letter": "4711", "celery_dlq.group": "9c1e", "celery_dlq.redrive": 2,
    }  # fmt: skip
    assert watched.tags == {"dlq.letter": "4711", "dlq.group": "9c1e", "dlq.redrive": "2"}
    watched.run(charge, headers={**REDRIVEN, LETTER_HEADER: "kept-as"})
    assert watched.tags["dlq.letter"] == "kept-as"


def test_the_run_of_another_message_names_nothing(watched, charge):
    watched.run(charge, headers=None)
    assert not watched.span.attributes
    assert (watched.events, watched.tags) == ([], {})


def test_a_letter_is_an_event_and_has_tags(watched, charge):
    ended = watched.run(charge, "ValueError", headers=None)
    failure = reported(ended.retval).failure
    group = watched.tags["dlq.group"]
    assert watched.tags == {"dlq.letter": "4711", "dlq.group": group}
    assert watched.events == [(
        "celery_dlq.letter",
        {**DIED, "celery_dlq.letter": "4711", "celery_dlq.group": group,
         "celery_dlq.rule": failure.explanation.rule},
    )]  # fmt: skip


def test_a_retry_is_an_event_with_its_delay(watched, charge):
    charge.retry_backoff, charge.retry_jitter = 30, False
    watched.run(charge, "ConnectionError", retries=1)
    [(name, found)] = watched.events
    assert name == "celery_dlq.retry"
    assert found == {
        "celery_dlq.verdict": "transient", "celery_dlq.rule": found["celery_dlq.rule"],
        "celery_dlq.attempt": 2, "celery_dlq.redrive": 2, "celery_dlq.delay": 60.0,
    }  # fmt: skip
    assert watched.tags["dlq.redrive"] == "2"


def test_a_retry_that_the_body_asks_for_is_an_event(app, watched):
    @app.task(base=DLQTask, bind=True)
    def poll(self):
        self.retry(countdown=7)

    watched.run(poll, headers=None)
    [(name, found)] = watched.events
    assert (name, found["celery_dlq.rule"], found["celery_dlq.delay"]) == (
        "celery_dlq.retry", "task.retry", 7.0,
    )  # fmt: skip


def test_without_sentrys_integration_for_celery_no_tag_is_set(exporter, sentry, charge):
    watched = Watched(sentry(integrations=()), exporter)
    watched.run(charge, "ValueError")
    assert watched.tags == {}
    assert [name for name, _ in watched.events] == ["celery_dlq.letter"]


def test_without_an_open_span_there_are_only_tags(sentry, charge):
    watched = Watched(sentry())
    watched.run(charge, "ValueError")
    assert watched.tags["dlq.letter"] == "4711"


def test_an_error_of_theirs_changes_nothing(monkeypatch, charge):
    monkeypatch.setitem(sys.modules, "sentry_sdk", SimpleNamespace())
    watched = Watched()
    assert watched.run(charge).info is None
    ended = watched.run(charge, "ValueError")
    assert reported(ended.retval).failure.message == "bad currency"


def test_a_time_limit_that_ends_while_the_run_is_marked_is_the_tasks(monkeypatch, charge):
    def slow():
        raise SoftTimeLimitExceeded

    monkeypatch.setitem(sys.modules, "sentry_sdk", SimpleNamespace(get_client=slow))
    ended = Watched().run(charge)
    assert ended.info is not None
