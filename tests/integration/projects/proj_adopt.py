"""The app of ``proj`` as a project that existed before its dead letters: with base classes, locks and retries
of its own, and with libraries that patch Celery."""

import os

import celery
import requests
import tenacity
import urllib3
from celery.worker.request import Request
from celery_once import QueueOnce
from celery_singleton import Singleton
from proj import app, say, unless_fixed
from requests.adapters import HTTPAdapter

from celery_dlq import DLQTask
from celery_dlq.worker.end.request import DLQRequest

app.conf.singleton_backend_url = os.environ["PROJ_BROKER"]
app.conf.singleton_key_prefix = f"{os.environ['PROJ_QUEUE']}-"
app.conf.ONCE = {
    "backend": "celery_once.backends.Redis",
    "settings": {"url": os.environ["PROJ_BROKER"], "default_timeout": 60},
}
ADDRESS = os.environ["ADOPT_URL"]


class Journal:
    """A mixin with handlers, as projects have one."""

    def on_success(self, retval, task_id, args, kwargs):
        say("journal", f"{task_id} success")
        return super().on_success(retval, task_id, args, kwargs)

    def on_retry(self, exc, task_id, args, kwargs, einfo):
        say("journal", f"{task_id} retry {type(exc).__name__}")
        return super().on_retry(exc, task_id, args, kwargs, einfo)

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        say("journal", f"{task_id} failure {type(exc).__name__}")
        return super().on_failure(exc, task_id, args, kwargs, einfo)

    def after_return(self, status, retval, task_id, args, kwargs, einfo):
        say("journal", f"{task_id} return {status}")
        return super().after_return(status, retval, task_id, args, kwargs, einfo)


class JournalTask(Journal, DLQTask):
    """A mixin that calls super()."""


class RaisingTask(DLQTask):
    def on_failure(self, exc, task_id, args, kwargs, einfo):
        raise RuntimeError("the handler is wrong, too")


class ContextTask(celery.Task):
    """Runs tasks within a context, as in Flask's documentation: without super()."""

    def __call__(self, *args, **kwargs):
        say("contexts", self.name)
        return self.run(*args, **kwargs)


class ContextBehind(DLQTask, ContextTask):
    """The right order."""


class ContextBefore(ContextTask, DLQTask):
    """The wrong order: nothing calls DLQTask.__call__."""


class Opening(DLQTask):
    """Opens a resource around the body, outside of the part whose errors are judged."""

    def __call__(self, *args, **kwargs):
        unless_fixed(ConnectionError("could not be opened"))
        return super().__call__(*args, **kwargs)


class OpensBehind(celery.Task):
    def __call__(self, *args, **kwargs):
        unless_fixed(ConnectionError("could not be opened"))
        return super().__call__(*args, **kwargs)


class OpeningBehind(DLQTask, OpensBehind):
    """Fails to open its resource in a base class after DLQTask."""


class NotingRequest(DLQRequest):
    def on_accepted(self, pid, time_accepted):
        say("accepted", self.id)
        return super().on_accepted(pid, time_accepted)


class PlainRequest(Request):
    """Knows nothing of dead letters."""


@app.task(base=JournalTask, name="proj.journal")
def journal():
    unless_fixed(ConnectionError("away"))


@app.task(base=JournalTask, name="proj.journal_terminal")
def journal_terminal():
    unless_fixed(ValueError("wrong"))


@app.task(base=RaisingTask, name="proj.raising")
def raising():
    unless_fixed(ValueError("wrong"))


@app.task(base=ContextBehind, name="proj.context_behind")
def context_behind():
    unless_fixed(ConnectionError("away"))


@app.task(base=ContextBefore, name="proj.context_before")
def context_before():
    unless_fixed(ConnectionError("away"))


@app.task(base=Opening, name="proj.opening")
def opening():
    pass


@app.task(base=OpeningBehind, name="proj.opening_behind")
def opening_behind():
    pass


@app.task(base=DLQTask, Request=NotingRequest, name="proj.noting")
def noting():
    unless_fixed(ValueError("wrong"))


@app.task(base=DLQTask, Request=PlainRequest, name="proj.plain_request")
def plain_request():
    unless_fixed(ValueError("wrong"))


def call(name, exc):
    say("calls", name)
    unless_fixed(exc)


@app.task(base=DLQTask, name="proj.tenacious")
@tenacity.retry(stop=tenacity.stop_after_attempt(3))
def tenacious():
    call("tenacious", ConnectionError("away"))


@app.task(base=DLQTask, name="proj.tenacious_raises")
@tenacity.retry(stop=tenacity.stop_after_attempt(3), reraise=True)
def tenacious_raises():
    call("tenacious_raises", ConnectionError("away"))


@app.task(base=DLQTask, name="proj.tenacious_once", max_retries=0)
@tenacity.retry(stop=tenacity.stop_after_attempt(3), reraise=True)
def tenacious_once():
    call("tenacious_once", ConnectionError("away"))


@app.task(base=DLQTask, name="proj.tenacious_terminal")
@tenacity.retry(stop=tenacity.stop_after_attempt(3))
def tenacious_terminal():
    call("tenacious_terminal", KeyError("wrong"))


@app.task(base=DLQTask, name="proj.session")
def session():
    with requests.Session() as made:
        retries = urllib3.Retry(total=3, status_forcelist=[503], backoff_factor=0)
        made.mount("http://", HTTPAdapter(max_retries=retries))
        made.get(f"{ADDRESS}/session", timeout=10)


@app.task(base=DLQTask, name="proj.session_status")
def session_status():
    with requests.Session() as made:
        retries = urllib3.Retry(total=3, status_forcelist=[503], raise_on_status=False)
        made.mount("http://", HTTPAdapter(max_retries=retries))
        made.get(f"{ADDRESS}/session_status", timeout=10).raise_for_status()


@app.task(base=DLQTask, name="proj.session_500")
def session_500():
    with requests.Session() as made:
        retries = urllib3.Retry(total=3, status_forcelist=[500], backoff_factor=0)
        made.mount("http://", HTTPAdapter(max_retries=retries))
        made.get(f"{ADDRESS}/session_500", timeout=10)


@app.task(base=DLQTask, name="proj.no_retries")
def no_retries():
    requests.get(f"{ADDRESS}/no_retries", timeout=10).raise_for_status()


@app.task(
    base=DLQTask, name="proj.autoretry", autoretry_for=(LookupError,), retry_backoff=True,
    retry_backoff_max=0.05, max_retries=1,
)  # fmt: skip
def autoretry():
    call("autoretry", LookupError("not there"))


@app.task(base=DLQTask, name="proj.autoretry_other", autoretry_for=(LookupError,), max_retries=1)
def autoretry_other():
    call("autoretry_other", ConnectionError("away"))


class SingleTask(DLQTask, Singleton):
    """Used without changes."""


class SingleOnce(DLQTask, Singleton):
    """Retries pass the lock, which their task has already."""

    def apply_async(self, args=None, kwargs=None, **options):
        if options.get("retries"):
            return celery.Task.apply_async(self, args, kwargs, **options)
        return super().apply_async(args, kwargs, **options)


@app.task(base=SingleTask, name="proj.single")
def single(x):
    call("single", ConnectionError("away"))


@app.task(base=SingleOnce, name="proj.single_retried")
def single_retried(x):
    call("single_retried", ConnectionError("away"))


@app.task(base=SingleTask, name="proj.single_terminal")
def single_terminal(x):
    call("single_terminal", ValueError("wrong"))


class OnceTask(DLQTask, QueueOnce):
    """Runs one at a time."""


@app.task(base=OnceTask, name="proj.once", once={"graceful": True})
def once(x):
    call("once", ConnectionError("away"))


@app.task(base=DLQTask, name="proj.produce")
def produce(name, *args):
    result = app.tasks[name].apply_async(args)
    say("produced", f"{name} {result.id}")


#: The base class of the tasks whose adoption is taken back.
BASE = celery.Task if os.environ.get("ADOPT_ROLLED_BACK") else DLQTask


@app.task(base=BASE, name="proj.switched")
def switched():
    unless_fixed(ValueError("wrong"))


@app.task(
    base=BASE, name="proj.waiting", bind=True, default_retry_delay=1, max_retries=3,
    autoretry_for=(ConnectionError,),
)  # fmt: skip
def waiting(self):
    ours = sorted(name for name in self.request.headers or () if name.startswith("x-dlq-"))
    say("waiting", f"{self.request.retries} {' '.join(ours)}")
    unless_fixed(ConnectionError("away"))
