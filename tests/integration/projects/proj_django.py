"""The app of ``proj`` in a Django project, whose schedule and results are in Django's database."""

from proj import app, unless_fixed

from celery_dlq import DLQTask

app.conf.update(result_extended=True, django_celery_beat_tz_aware=True, beat_max_loop_interval=1)


@app.task(base=DLQTask, name="proj.periodic")
def periodic():
    unless_fixed(ConnectionError("away"))
