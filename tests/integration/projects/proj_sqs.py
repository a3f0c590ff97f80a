"""The app of ``proj`` with tasks that note their runs, for Amazon SQS."""

from proj import app, say, unless_fixed

from celery_dlq import DLQTask


@app.task(base=DLQTask, name="proj.retried", bind=True, max_retries=3)
def retried(self, seconds):
    """Retries once, and fails until the fix is deployed."""
    say("runs", f"{self.request.id} {self.request.properties.get('MessageGroupId')}")
    if not self.request.retries and not (self.request.headers or {}).get("x-dlq-redrive"):
        raise self.retry(countdown=seconds)
    unless_fixed(ValueError("not yet"))


@app.task(base=DLQTask, name="proj.fails_late", acks_late=True, acks_on_failure_or_timeout=False)
def fails_late():
    """Its message is rejected when it has failed."""
    say("runs", "fails_late")
    raise ValueError("bad order")
