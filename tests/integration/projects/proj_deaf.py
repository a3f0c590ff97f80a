"""The app of ``proj``, whose parent reads no result of its pool once a task has come. This happens if it
has to shut down right after it has handed out tasks. A process that is given a long text reads it only when
the shutdown has begun."""

import os
import signal

from celery import Task
from celery.signals import task_received, worker_ready
from proj import app, say

from celery_dlq import DLQTask

consumers = []


@worker_ready.connect
def remember(sender, **_):
    consumers.append(sender)


@task_received.connect
def read_no_more(request, **_):
    [consumer] = consumers
    for fd in consumer.pool._pool._fileno_to_outq:
        consumer.hub.remove_reader(fd)
    if request.name == "proj.takes_text":
        signal_processes(signal.SIGSTOP)
        # Celery calls this when its event loop has ended.
        app.loader.on_worker_shutdown = lambda: signal_processes(signal.SIGCONT)
        look_at_the_pipes()


def signal_processes(number):
    [consumer] = consumers
    for process in consumer.pool._pool._pool:
        os.kill(process.pid, number)


def look_at_the_pipes():
    [consumer] = consumers
    if consumer.pool._pool._active_writers:
        say("partly", "written")
    else:
        consumer.hub.call_later(0.02, look_at_the_pipes)


@app.task(base=Task, name="proj.plain")
def plain():
    say("runs", "plain")


@app.task(base=DLQTask, name="proj.fails_long")
def fails_long():
    say("runs", "fails_long")
    raise ValueError("more than a pipe holds" * 5_000)


@app.task(base=DLQTask, name="proj.takes_text")
def takes_text(text):
    say("runs", len(text))
