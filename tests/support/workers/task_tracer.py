"""One run of a task by Celery's own tracer, as a pool child makes it."""

from __future__ import annotations

from celery.app.trace import build_tracer, setup_worker_optimizations

from celery_dlq.worker.body.ending import UNREPORTED
from celery_dlq.worker.body.report import reported


class Run:
    """A run, and what came of it."""

    def __init__(self, task, *args, retries=0, headers=None, **kwargs):
        task.app.finalize()
        setup_worker_optimizations(task.app)
        request = {
            "id": "4711", "task": task.name, "retries": retries, "hostname": "celery@host",
            "delivery_info": {"exchange": "", "routing_key": "celery"}, "headers": headers,
            "is_eager": False, "root_id": "4711",
        }  # fmt: skip
        task.__trace__ = build_tracer(task.name, task, app=task.app)
        self.result = task.__trace__("4711", list(args), kwargs, request)
        info = self.result.info
        self.state = info.state if info else "SUCCESS"
        self.einfo = self.result.retval
        self.end = UNREPORTED if info is None else reported(self.einfo)
        self.failure, self.retried = self.end.failure, self.end.retried
        self.message = _published(task.app)


def _published(app):
    with app.connection_for_write() as connection:
        message = connection.SimpleQueue("celery").queue.get()
        if message is None:
            return None
        message.ack()
        return message
