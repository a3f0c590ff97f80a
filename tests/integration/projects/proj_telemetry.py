"""The app of ``proj`` in workers that Sentry and OpenTelemetry watch; what they would send goes to files."""

import json

import sentry_sdk
from celery.signals import worker_process_init
from opentelemetry import trace
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from proj import app, say, unless_fixed
from sentry_sdk.integrations.celery import CeleryIntegration
from sentry_sdk.transport import Transport

from celery_dlq import DLQTask


class ToFile(Transport):
    def capture_envelope(self, envelope):
        for item in envelope.items:
            event = item.payload.json
            if item.type == "event":
                [error] = event["exception"]["values"][-1:]
                found = {
                    "task": event["extra"]["celery-job"]["task_name"],
                    "type": error["type"],
                    "trace": event["contexts"]["trace"]["trace_id"],
                }
                say("sentry", json.dumps(found))
            elif item.type == "transaction":
                context = event["contexts"]["trace"]
                found = {
                    "name": event["transaction"],
                    "trace": context["trace_id"],
                    "status": context.get("status"),
                }
                say("transactions", json.dumps(found))


class Spans(SpanExporter):
    def export(self, spans):
        for span in spans:
            found = {
                "name": span.name,
                "trace": f"{span.context.trace_id:032x}",
                "span": f"{span.context.span_id:016x}",
                "parent": span.parent and f"{span.parent.span_id:016x}",
                "status": span.status.status_code.name,
            }
            say("spans", json.dumps(found))
        return SpanExportResult.SUCCESS


sentry_sdk.init(
    dsn="http://key@127.0.0.1/1",
    transport=ToFile,
    traces_sample_rate=1.0,
    integrations=[CeleryIntegration()],
)


@worker_process_init.connect(weak=False)
def instrument(**_):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Spans()))
    trace.set_tracer_provider(provider)
    CeleryInstrumentor().instrument()


@app.task(base=DLQTask, name="proj.watched")
def watched(x=0):
    unless_fixed(ConnectionError("away"))


@app.task(base=DLQTask, name="proj.watched_terminal")
def watched_terminal(x=0):
    unless_fixed(ValueError("wrong"))


@app.task(base=DLQTask, name="proj.watched_recovers", bind=True)
def watched_recovers(self):
    if self.request.retries < 1:
        raise ConnectionError("away")


@app.task(base=DLQTask, name="proj.produce")
def produce(name, *args):
    result = app.tasks[name].apply_async(args)
    say("produced", f"{name} {result.id}")
