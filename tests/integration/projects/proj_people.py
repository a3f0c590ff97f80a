"""Tasks about people: one that is refused, and one that waits in the store before it fails for good."""

from proj import app

from celery_dlq import DLQTask


@app.task(base=DLQTask, name="proj.charge")
def charge(user_id, email):
    raise ValueError(f"the card of {email} was refused")


@app.task(base=DLQTask, name="proj.mail", bind=True, max_retries=1)
def mail(self, user_id, email):
    raise self.retry(exc=ConnectionError(f"no route to {email}"), countdown=2)
