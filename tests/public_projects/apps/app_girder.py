"""Girder Worker: a task class with ``apply_async()`` and ``__call__()`` of its own, a serializer that takes
the place of JSON, and jobs whose state its signals report to a server."""

import os

from cases import RABBITMQ, SECRET, SERVICE, Case, set_up
from girder_client import GirderClient
from girder_worker._test_plugins import tasks  # noqa: F401
from girder_worker.app import app
from girder_worker.utils.transforms.girder_io import GirderFileId, GirderItemId

WORKER_OPTIONS = ("-P", "prefork", "-c", "1")
# Its settings accept pickle, which Celery refuses as root.
os.environ["C_FORCE_ROOT"] = "yes"

_TASK = "girder_worker._test_plugins.tasks.celery_task"

set_up(app, RABBITMQ)
app.conf.result_backend = None

_client = GirderClient(apiUrl=f"{SERVICE}/api/v1")
_client.token = SECRET


def _fails(argument, verdict, reason):
    job = {
        "url": f"{SERVICE}/api/v1/job/1", "method": "PUT", "headers": {"Girder-Token": SECRET},
        "reference": None, "logPrint": False,
    }  # fmt: skip
    options = {"girder_client_token": SECRET, "headers": {"jobInfoSpec": job}}
    return Case(_TASK, "HttpError", verdict, reason, (argument,), {}, options)


CASES = [
    _fails(GirderFileId("away", gc=_client), "transient", "exhausted"),
    _fails(GirderFileId("missing", gc=_client), "terminal", "terminal"),
    _fails(GirderFileId("forbidden", gc=_client), "terminal", "terminal"),
    _fails(GirderFileId("broken", gc=_client), "terminal", "terminal"),
    _fails(GirderItemId("throttled", gc=_client), "transient", "exhausted"),
]
_FILE = "/api/v1/file/{}"
_STATUSES = {"away": 503, "missing": 404, "forbidden": 403, "broken": 500}
_CONTENT = b"content"
ANSWERS = {
    "/api/v1/job/1": (200, {"status": 2}),
    **{_FILE.format(name): (status, {}) for name, status in _STATUSES.items()},
    "/api/v1/item/throttled/files": (429, {}),
    "": (200, _CONTENT),
}


def prepare():
    """Nothing."""


def mend(service):
    found = (200, {"created": "2026-11-29", "size": len(_CONTENT)})
    service.answers.update({_FILE.format(name): found for name in _STATUSES})
    service.answers["/api/v1/item/throttled/files"] = (200, [])
