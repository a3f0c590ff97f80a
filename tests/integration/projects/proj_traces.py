"""The app of ``proj``, watched by OpenTelemetry and Sentry in workers, producers and redrives. Files get what
they export: spans as OpenTelemetry writes them to a console, and Sentry's envelopes."""

import json

import sentry_sdk
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
            if item.type in ("event", "transaction"):
                say("envelopes", json.dumps({"type": item.type, **item.payload.json}, default=str))


class Spans(SpanExporter):
    def export(self, spans):
        for span in spans:
            say("spans", span.to_json(indent=None))
        return SpanExportResult.SUCCESS


sentry_sdk.init(
    dsn="http://key@127.0.0.1/1", transport=ToFile, traces_sample_rate=1.0,
    # The others that it finds import their libraries, which takes seconds in each process.
    auto_enabling_integrations=False, integrations=[CeleryIntegration()],
)  # fmt: skip
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(Spans()))
trace.set_tracer_provider(provider)
CeleryInstrumentor().instrument()


@app.task(base=DLQTask, bind=True, name="proj.traced", max_retries=1)
def traced(self):
    run = self.request.dlq
    say("runs", json.dumps([run.letter, run.redrive, run.attempt]))
    unless_fixed(ConnectionError("away"))


if __name__ == "__main__":
    with trace.get_tracer("shop").start_as_current_span("checkout"):
        print(traced.apply_async().id)
