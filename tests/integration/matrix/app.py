"""The app of the matrix: proj's tasks and one for each further way to die, early and late."""

import ctypes
import os
import signal
import time

import gevent
import proj
from billiard.process import current_process
from celery import signals
from celery.exceptions import Reject
from proj import FIXED, app, count

from celery_dlq import DLQTask

#: Tasks that block continue once this file is there.
RELEASE = FIXED.with_name("release")
#: Nothing listens there.
NOWHERE = {
    "redis": "redis://127.0.0.1:1/0", "amqp": "amqp://guest@127.0.0.1:1//", "sqs": "sqs://a:b@127.0.0.1:1",
}  # fmt: skip


@signals.task_prerun.connect(weak=False)
def _started(task_id, **_):
    count(f"started-{task_id}")


@signals.task_postrun.connect(weak=False)
def _ended(task_id, state, **_):
    if state == "SUCCESS":
        count(f"finished-{task_id}")


def late(task, **options):
    """Register ``task`` once more, acknowledged after it has run."""
    attributes = {"name": f"{task.name}-late", "acks_late": True, **options}
    app.register_task(type("Late", (task.__class__,), attributes)())  # type() is the lazy proxy


def also_late(task):
    late(task)
    return task


def task(**options):
    def register(body):
        defaults = {"base": DLQTask, "name": f"matrix.{body.__name__}"}
        return app.task(bind=True, **{**defaults, **options})(body)

    return register


def wait_until(ready, at_most_s=120.0):
    end = time.monotonic() + at_most_s
    while not ready() and time.monotonic() < end:
        time.sleep(0.05)


for existing in (
    proj.terminal, proj.exhausted, proj.retries_itself, proj.hostile, proj.exits, proj.eats_memory,
    proj.rejects, proj.ignores, proj.is_killed, proj.returns_a_file, proj.succeed, proj.recovers,
):  # fmt: skip
    late(existing)
late(proj.is_killed, name="proj.is_killed-once", reject_on_worker_lost=False)
late(proj.returns_a_file, name="proj.returns_a_file-ignored", acks_late=False, ignore_result=True)


@task(throws=(KeyError,))
def throws(self):
    raise KeyError("expected by the author")


@task(autoretry_for=(LookupError,), max_retries=2, retry_backoff=False, default_retry_delay=0)
def autoretried(self):
    raise LookupError("still not there")


@task()
def retries_once(self, countdown):
    if not self.request.retries:
        raise self.retry(countdown=countdown)


@task(max_retries=1)
def retries_without_exc(self):
    raise self.retry(countdown=0)


@also_late
@task(dlq_retry_budget=0.0, dlq_retry_budget_floor=0)
def over_its_budget(self):
    raise ConnectionError("the bank is down")


@also_late
@task()
def retry_unpublishable(self):
    transport = app.conf.broker_url.partition(":")[0]
    raise self.retry(
        exc=LookupError("not there yet"), countdown=0, retry=False,
        connection=app.connection_for_write(NOWHERE[transport], connect_timeout=0.5),
    )  # fmt: skip


@task(soft_time_limit=0.4)
def outruns_the_soft_limit(self):
    time.sleep(1.2)


@also_late
@task(time_limit=0.4)
def outruns_the_hard_limit(self):
    time.sleep(1.2)


@also_late
@task()
def segfaults(self):
    ctypes.string_at(0)


@also_late
@task()
def leaves(self, status):
    os._exit(status)


@also_late
@task()
def interrupted(self):
    raise KeyboardInterrupt


@also_late
@task()
def generator_exit(self):
    raise GeneratorExit


@also_late
@task()
def greenlet_exit(self):
    raise gevent.GreenletExit


@task(max_retries=1)
def gevent_timeout(self):
    with gevent.Timeout(0.01):
        gevent.sleep(60)


@task()
def forks(self):
    child = os.fork()
    if not child:
        raise ConnectionError("the bank is down")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 1


@task()
def forks_and_both_return(self):
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        assert status == 0


class DiesOfItsSuccess(DLQTask):
    def on_success(self, *args):
        os._exit(1)


@also_late
@task()
def rejects_once_with_requeue(self):
    if count(f"rejected-{self.request.id}") == 1:
        raise Reject("later, please", requeue=True)


class BreaksBefore(DLQTask):
    def before_start(self, *args):
        raise ValueError("before_start is broken")


class BreaksAfterSuccess(DLQTask):
    def on_success(self, *args):
        raise ValueError("on_success is broken")


class BreaksAtReturn(DLQTask):
    def after_return(self, *args):
        raise ValueError("after_return is broken")


class BreaksAfterFailure(DLQTask):
    def on_failure(self, *args):
        raise KeyError("on_failure is broken")


def nothing(self):
    pass


def failure(self):
    raise ValueError("the body is broken")


task(name="matrix.dies_of_its_success", base=DiesOfItsSuccess)(nothing)
also_late(task(name="matrix.breaks_before", base=BreaksBefore)(nothing))
also_late(task(name="matrix.breaks_after_success", base=BreaksAfterSuccess)(nothing))
also_late(task(name="matrix.breaks_at_return", base=BreaksAtReturn)(nothing))
also_late(task(name="matrix.breaks_after_failure", base=BreaksAfterFailure)(failure))


@task()
def calls_a_dying_task(self, how):
    if how == "apply":
        return proj.terminal.apply(throw=False).state
    try:
        return proj.terminal()
    except ValueError:
        return "raised"


@task()
def sleeps(self, seconds):
    time.sleep(seconds)


@also_late
@task()
def blocks(self):
    wait_until(RELEASE.exists)


@also_late
@task()
def blocks_and_fails(self):
    wait_until(RELEASE.exists)
    raise ValueError("after all that")


@task(acks_late=True)
def kills_its_worker(self):
    if current_process().name != "MainProcess":
        os.kill(os.getppid(), signal.SIGKILL)
    # A process that outlives its parent would report a success.
    os.kill(os.getpid(), signal.SIGKILL)
