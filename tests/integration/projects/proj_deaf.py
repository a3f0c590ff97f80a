"""The app of ``proj``, whose parent reads no result of its pool once a task has come. This happens if it
has to shut down right after it has handed out tasks."""

from celery import Task
from celery.signals import task_received, worker_ready
from proj import app, say

from celery_dlq import DLQTask

consumers = []


@worker_ready.connect
def remember(sender, **_):
    consumers.append(sender)


@task_received.connect
def read_no_more(**_):
    [consumer] = consumers
    for fd in consumer.pool._pool._fileno_to_outq:
        consumer.hub.remove_reader(fd)


@app.task(base=Task, name="proj.plain")
def plain():
    say("runs", "plain")


@app.task(base=DLQTask, name="proj.fails_long")
def fails_long():
    say("runs", "fails_long")
    raise ValueError("more than a pipe holds" * 5_000)
