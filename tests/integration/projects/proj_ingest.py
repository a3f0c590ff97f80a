"""The app of ``proj``, its queue declared with arguments."""

import json
import os

from celery.exceptions import Reject
from kombu import Exchange, Queue
from proj import app

from celery_dlq import DLQTask

app.conf.task_queues = [
    Queue(
        os.environ["PROJ_QUEUE"],
        Exchange(""),
        routing_key=os.environ["PROJ_QUEUE"],
        queue_arguments=json.loads(os.environ["PROJ_QUEUE_ARGUMENTS"]),
    )
]


@app.task(base=DLQTask, name="proj.rejects_late", acks_late=True)
def rejects_late():
    raise Reject("not mine", requeue=False)
