"""Spans of OpenTelemetry for messages that are sent back, and the time of sending for Sentry."""

import subprocess
import sys
from datetime import timedelta

import opentelemetry
import pytest
from celery import Celery
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider, sampling
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from support.factories import T0, envelope, letter

from celery_dlq import Settings
from celery_dlq.redrive.broker.message import Sent
from celery_dlq.redrive.broker.trace import SENTRY_SENT_HEADER, Tracing

OLD_TRACE, OLD_SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
STORED = {
    "id": "a", "task": "shop.charge", "traceparent": f"00-{OLD_TRACE:032x}-{OLD_SPAN:016x}-01",
    "tracestate": "vendor=1", "baggage": "tenant=acme",
}  # fmt: skip
NOW = T0 + timedelta(days=7)


class Publisher:
    def __init__(self, sent=None):
        self.letters, self._sent = [], sent

    def begin(self, letters):
        self.letters = list(letters)
        return lambda: self._sent or Sent(confirmed=[one.task_id for one in letters])

    @property
    def headers(self):
        return [dict(one.envelope.headers) for one in self.letters]


@pytest.fixture
def provide(monkeypatch):
    """Make a provider the program's own, as its exporter."""

    def provide(**options):
        provider, exporter = TracerProvider(**options), InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
        return exporter

    return provide


@pytest.fixture
def exporter(provide):
    return provide()


@pytest.fixture
def publisher():
    return Publisher()


def one(headers=STORED, **changes):
    return letter("a", envelope=envelope("a", headers=headers), **changes)


def publish(publisher, *letters, how="link", broker="memory://"):
    app = Celery("unit", broker=broker, set_as_current=False)
    tracing = Tracing(app, Settings(redrive_trace=how), "op-1", lambda: NOW)
    return tracing.publish(publisher, letters)()


def context_of(headers):
    """The context that a worker reads in ``headers``."""
    read = propagate.extract({"traceparent": headers["traceparent"]}, Context())
    return trace.get_current_span(read).get_span_context()


def test_a_message_begins_a_trace_that_is_linked_to_that_of_the_failure(exporter, publisher):
    sent = publish(publisher, one(redrive_count=1))
    assert sent.confirmed == ["a"]
    [span] = exporter.get_finished_spans()
    assert (span.name, span.kind, span.parent) == ("redrive celery", SpanKind.PRODUCER, None)
    [link] = span.links
    assert (link.context.trace_id, link.context.span_id) == (OLD_TRACE, OLD_SPAN)
    assert span.context.trace_id != OLD_TRACE
    assert dict(span.attributes) == {
        "messaging.system": "memory",
        "messaging.operation.name": "redrive",
        "messaging.operation.type": "send",
        "messaging.destination.name": "celery",
        "messaging.message.id": "a",
        "messaging.message.body.size": len(one().envelope.body),
        "celery.task_name": "shop.charge",
        "celery_dlq.letter": "a",
        "celery_dlq.group": "9c1e0000deadbeef",
        "celery_dlq.redrive": 2,
        "celery_dlq.operation": "op-1",
    }
    assert span.status.status_code is StatusCode.UNSET


def test_its_headers_lead_to_the_new_span_and_keep_the_baggage(exporter, publisher):
    publish(publisher, one())
    [span] = exporter.get_finished_spans()
    [headers] = publisher.headers
    assert context_of(headers).span_id == span.context.span_id
    # The state of a trace belongs to it.
    assert {**headers, "tracestate": "vendor=1"} == {
        **STORED, "traceparent": headers["traceparent"],
    }  # fmt: skip
    assert "tracestate" not in headers


def test_a_trace_that_continues_has_the_new_span_as_a_child(exporter, publisher):
    publish(publisher, one(), how="continue")
    [span] = exporter.get_finished_spans()
    [headers] = publisher.headers
    assert (span.parent.trace_id, span.parent.span_id) == (OLD_TRACE, OLD_SPAN)
    assert span.context.trace_id == OLD_TRACE
    assert span.links == ()
    assert context_of(headers).span_id == span.context.span_id
    assert headers["tracestate"] == "vendor=1"


def test_a_redrive_inside_of_another_span_has_a_trace_of_its_own(exporter, publisher):
    with trace.get_tracer("web").start_as_current_span("POST /redrive"):
        publish(publisher, one())
    span, outer = exporter.get_finished_spans()
    assert span.parent is None
    assert span.context.trace_id != outer.context.trace_id


def test_a_broken_baggage_does_not_cost_the_link(exporter, publisher):
    publish(publisher, one({**STORED, "baggage": 7, "tracestate": b"\xff"}))
    [span] = exporter.get_finished_spans()
    assert [link.context.trace_id for link in span.links] == [OLD_TRACE]


@pytest.mark.parametrize("how", ["link", "continue"])
@pytest.mark.parametrize("value", [None, 7, "", "broken", b"\xff", ["00"], {"a": 1}])
def test_without_a_context_that_can_be_read_it_begins_a_trace(exporter, publisher, how, value):
    headers = {"id": "a", "task": "t", "traceparent": value, "tracestate": value, "baggage": value}
    publish(publisher, one(headers), how=how)
    [span] = exporter.get_finished_spans()
    assert (span.parent, span.links) == (None, ())
    assert context_of(publisher.headers[0]).span_id == span.context.span_id


def test_headers_that_a_running_task_sees_in_the_place_of_all_others_change_too(
    exporter, publisher
):
    publish(publisher, one({**STORED, "headers": {"traceparent": "old", "tenant": "acme"}}))
    [headers] = publisher.headers
    assert headers["headers"] == {"tenant": "acme", "traceparent": headers["traceparent"]}


def test_a_trace_that_is_not_sampled_is_not_sampled_in_the_worker_either(provide, publisher):
    exporter = provide(sampler=sampling.ALWAYS_OFF)
    publish(publisher, one())
    assert exporter.get_finished_spans() == ()
    found = context_of(publisher.headers[0])
    assert found.trace_id != OLD_TRACE
    assert not found.trace_flags.sampled


def test_without_an_sdk_the_headers_stay(monkeypatch, publisher):
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    for how in ("link", "continue"):
        publish(publisher, one(), how=how)
        assert publisher.headers == [STORED]


def test_a_program_that_has_not_imported_opentelemetry_does_not_import_it():
    code = (
        "import sys; import celery_dlq.redrive.broker.trace, celery_dlq.worker.task;"
        "print({'opentelemetry', 'sentry_sdk'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout == "set()\n"


def test_messages_that_were_not_sent_have_failed_spans(exporter):
    sent = Sent(confirmed=["a"], refused={"b": "no queue"}, uncertain=["c"], error="reset")
    publish(Publisher(sent), *(letter(one, envelope=envelope(one)) for one in "abc"))
    found = {
        span.attributes["messaging.message.id"]: (
            span.status.status_code, span.status.description, span.attributes.get("error.type"),
        )
        for span in exporter.get_finished_spans()
    }  # fmt: skip
    assert found == {
        "a": (StatusCode.UNSET, None, None),
        "b": (StatusCode.ERROR, "no queue", "refused"),
        "c": (StatusCode.ERROR, "reset", "unconfirmed"),
    }


@pytest.mark.parametrize("step", ["on_start", "on_end"])
def test_an_error_of_theirs_does_not_stop_a_redrive(exporter, publisher, monkeypatch, step):
    class Broken(SimpleSpanProcessor):
        pass

    def fail(*_, **__):
        raise RuntimeError("broken")

    setattr(Broken, step, fail)
    trace.get_tracer_provider().add_span_processor(Broken(InMemorySpanExporter()))
    assert publish(publisher, one(), letter("b")).confirmed == ["a", "b"]
    assert len(publisher.letters) == 2


def test_a_propagator_that_is_not_installed_does_not_stop_a_redrive(
    exporter, publisher, monkeypatch
):
    monkeypatch.delattr(opentelemetry, "propagate")
    monkeypatch.setitem(sys.modules, "opentelemetry.propagate", None)
    assert publish(publisher, one()).confirmed == ["a"]
    assert publisher.headers == [STORED]


@pytest.mark.parametrize(
    ("broker", "system"), [("amqp://h", "rabbitmq"), ("sqs://", "aws_sqs"), ("redis://h", "redis")]
)
def test_brokers_have_the_names_of_the_conventions(exporter, publisher, broker, system):
    publish(publisher, one(), broker=broker)
    [span] = exporter.get_finished_spans()
    assert span.attributes["messaging.system"] == system


def test_a_place_without_a_queue_is_the_exchange_and_the_routing_key(exporter, publisher):
    publish(publisher, letter("a", envelope=envelope(exchange="x", routing_key="k", queue="")))
    assert exporter.get_finished_spans()[0].name == "redrive x:k"


def test_sentry_learns_when_a_message_was_sent(publisher):
    old = {"id": "a", SENTRY_SENT_HEADER: T0.timestamp(), "sentry-trace": "t", "baggage": "b"}
    plain = {"id": "b"}
    publish(publisher, one({**old, "headers": dict(old)}), one(plain))
    new = {**old, SENTRY_SENT_HEADER: NOW.timestamp()}
    first, second = publisher.headers
    for name, value in new.items():
        assert first[name] == first["headers"][name] == value
    assert SENTRY_SENT_HEADER not in second
