"""The app that the workers of a kill test run: a task for each kind."""

import os
import signal
import time
from pathlib import Path

from celery import Celery
from celery.exceptions import Ignore, Reject
from chaos.broker_clusters import MASTER
from chaos.ledger import FINISHED, IGNORED, STARTED, Ledger
from integration.queues import queue_settings

from celery_dlq import AutoRedrive, DLQTask, Filter, Timetable
from celery_dlq.model.headers import REDRIVE_HEADER

#: Seconds after which Redis hands out what a killed worker held. Longer than the longest task, and than
#: what a worker has waiting.
VISIBILITY_TIMEOUT_S = 20
HARD_LIMIT_S = 2
#: A longer wait is parked. No other retry waits that long.
PARK_AFTER_S = 2.0
DELIVERIES = 3

_REDIS = {
    "visibility_timeout": VISIBILITY_TIMEOUT_S,
    "unacked_restore_interval": 1,
    "unacked_restore_throttle": 1,
    # A worker that is killed while it looks for such messages leaves its lock behind. No other worker looks
    # until the lock expires: by default, 300 s in kombu.
    "unacked_mutex_expire": 5,
}
#: Without limits, a worker whose master hangs waits for an answer for ever.
_SENTINEL = {**_REDIS, "master_name": MASTER, "socket_timeout": 10, "socket_connect_timeout": 5}
#: Without confirms, a broker that dies loses the messages that it had not written yet.
_RABBITMQ = {"confirm_publish": True}

_BROKER = os.environ["CHAOS_BROKER"]
_OPTIONS = {"redis": _REDIS, "sentinel": _SENTINEL, "amqp": _RABBITMQ}[_BROKER.partition(":")[0]]
_IS_CLUSTER = ";" in _BROKER

app = Celery("chaos", broker=_BROKER, backend=os.environ["CHAOS_BACKEND"])
app.conf.update(
    **queue_settings("chaos", "quorum" if _IS_CLUSTER and _OPTIONS is _RABBITMQ else "classic"),
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    broker_transport_options=_OPTIONS,
    result_backend_transport_options={"master_name": MASTER} if _OPTIONS is _SENTINEL else {},
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    # A machine that is busy with restarts takes longer than 4 s to start a process.
    worker_proc_alive_timeout=60.0,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    dlq_store_url=os.environ["CHAOS_STORE"],
    dlq_spool_dir=os.environ["CHAOS_SPOOL"],
    dlq_store_timeout=1.0,
    dlq_max_attempts=4,
    dlq_retry_base=0.1,
    dlq_retry_cap=1.0,
    dlq_park_after=PARK_AFTER_S,
    dlq_stall_after=20.0,
    dlq_auto_redrive=[
        AutoRedrive("heals", where=Filter(task="heals"), after_s=1.0, when=Timetable(every_s=5.0))
    ]
    if _IS_CLUSTER
    else [],
)
ledger = Ledger(Path(os.environ["CHAOS_LEDGER"]))


class ChaosTask(DLQTask):
    """Notes that its body began."""

    abstract = True

    def note(self, what: str) -> None:
        request = self.request
        redelivered = bool((request.delivery_info or {}).get("redelivered"))
        ledger.write(request.id, what, request.retries + 1, redelivered)


def chaos_task(**options):
    return app.task(base=ChaosTask, bind=True, **options)


@chaos_task(name="quick")
def quick(self, number):
    self.note(STARTED)
    self.note(FINISHED)
    return number


@chaos_task(name="slow")
def slow(self, number):
    self.note(STARTED)
    time.sleep(number % 10 / 10)
    self.note(FINISHED)
    return number


@chaos_task(name="later")
def later(self, number):
    self.note(STARTED)
    self.note(FINISHED)
    return number


@chaos_task(name="recovers")
def recovers(self, number):
    self.note(STARTED)
    if self.request.retries <= number % 2:
        raise ConnectionError("not yet")
    self.note(FINISHED)
    return number


@chaos_task(name="terminal")
def terminal(self, number):
    self.note(STARTED)
    raise ValueError(f"bad currency {number}")


@chaos_task(name="exhausted")
def exhausted(self, number):
    self.note(STARTED)
    raise ConnectionError("the bank is down")


@chaos_task(name="rejects")
def rejects(self, number):
    self.note(STARTED)
    raise Reject("not mine", requeue=False)


@chaos_task(name="hangs", time_limit=HARD_LIMIT_S)
def hangs(self, number):
    self.note(STARTED)
    time.sleep(3_600)


@chaos_task(name="kills")
def kills(self, number):
    self.note(STARTED)
    os.kill(os.getpid(), signal.SIGKILL)


@chaos_task(name="ignores")
def ignores(self, number):
    self.note(STARTED)
    self.note(IGNORED)
    raise Ignore("nothing to do")


@chaos_task(name="expires")
def expires(self, number):
    self.note(STARTED)
    self.note(FINISHED)


@chaos_task(name="parks")
def parks(self, number):
    self.note(STARTED)
    if not self.request.retries:
        raise self.retry(countdown=PARK_AFTER_S + number % 8)
    self.note(FINISHED)


@chaos_task(name="heals")
def heals(self, number):
    self.note(STARTED)
    finish_if_sent_back(self)


@chaos_task(name="redriven")
def redriven(self, number):
    self.note(STARTED)
    finish_if_sent_back(self)


def finish_if_sent_back(task):
    if not task.request.get(REDRIVE_HEADER):
        raise ValueError("the books are closed")
    task.note(FINISHED)
