"""The app that the integration tests' workers run: one task for each way to end.

Everything is set by environment variables, so that a worker subprocess and the test agree.
"""

import contextlib
import json
import logging
import os
import signal
import time
from pathlib import Path

from celery import Celery
from celery.exceptions import Ignore, Reject
from celery.signals import worker_init
from celery.utils.log import get_task_logger
from queues import queue_settings, transport_options

from celery_dlq import DLQTask
from celery_dlq.worker.writing import store_calls

# Tests wait for these.
store_calls.STORE_PAUSE_S = float(os.environ.get("PROJ_STORE_PAUSE_S", "1"))
store_calls.DRAIN_INTERVAL_S = 3 * store_calls.STORE_PAUSE_S

app = Celery("proj", broker=os.environ["PROJ_BROKER"], backend=os.environ.get("PROJ_BACKEND"))
app.conf.update(
    **queue_settings(os.environ["PROJ_QUEUE"], os.environ.get("PROJ_QUEUE_TYPE", "classic")),
    dlq_store_url=os.environ["PROJ_STORE"],
    dlq_spool_dir=os.environ["PROJ_SPOOL"],
    dlq_retry_base=0.02,
    dlq_retry_cap=0.1,
    dlq_max_attempts=3,
    dlq_release="1.4.2",
    # A busy machine must not count as a store that is away.
    dlq_store_timeout=float(os.environ.get("PROJ_STORE_TIMEOUT", "60")),
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        **(
            {"unacked_restore_interval": 1, "unacked_restore_throttle": 1}
            if os.environ["PROJ_BROKER"].startswith("redis")
            else {}
        ),
        **transport_options(os.environ["PROJ_BROKER"], os.environ["PROJ_QUEUE"]),
        **json.loads(os.environ.get("PROJ_TRANSPORT", "{}")),
    },
    worker_hijack_root_logger=False,
    worker_enable_remote_control=not os.environ["PROJ_BROKER"].startswith("sqs"),
)
app.conf.update(json.loads(os.environ.get("PROJ_SETTINGS", "{}")))

#: Tasks succeed once this file is there: "the fix is deployed".
FIXED = Path(os.environ["PROJ_FIXED"])


class Hostile(Exception):
    """Cannot be pickled, cannot be printed, and is its own cause."""

    def __init__(self):
        super().__init__("hostile")
        self.lock = open(os.devnull)  # noqa: SIM115

    def __str__(self):
        raise RuntimeError("no text for you")


def unless_fixed(exc):
    if not FIXED.exists():
        raise exc


def count(name):
    """How often this was called with ``name``, over all processes."""
    path = FIXED.with_name(f"count-{name}")
    with path.open("a") as file:
        file.write(".")
        file.flush()
        return file.tell()


@app.task(base=DLQTask)
def succeed(x=1):
    return x


@app.task(base=DLQTask, dlq_tags=("money",))
def terminal(x=0, password="hunter2"):
    unless_fixed(ValueError(f"bad currency {x}"))
    return x


@app.task(base=DLQTask, bind=True)
def logs(self, lines):
    """Logs lines, fails once, and then for good."""
    get_task_logger("shop").debug("not at this level")
    for number in range(lines):
        get_task_logger("shop").info("attempt %d, line %d", self.request.retries + 1, number)
    print("said aloud", lines)
    logging.getLogger("shop.bank").warning("the bank said password=s3cret\nand no more")
    raise ConnectionError("slow today") if not self.request.retries else KeyError("shop")


@app.task(base=DLQTask)
def exhausted(x=0):
    unless_fixed(ConnectionError("the bank is down"))
    return x


@app.task(base=DLQTask, bind=True)
def recovers(self, x=0):
    if self.request.retries < 1:
        raise TimeoutError("slow today")
    return x


@app.task(base=DLQTask, bind=True, max_retries=1)
def retries_itself(self, x=0):
    raise self.retry(exc=LookupError("not there yet"), countdown=0)


@app.task(base=DLQTask)
def rejects():
    raise Reject("not mine", requeue=False)


@app.task(base=DLQTask)
def ignores():
    raise Ignore("nothing to do")


@app.task(base=DLQTask)
def hostile():
    exc = Hostile()
    raise exc from exc


@app.task(base=DLQTask)
def huge():
    raise ValueError("x" * 5_000_000)


@app.task(base=DLQTask)
def exits():
    raise SystemExit(3)


@app.task(base=DLQTask)
def eats_memory():
    raise MemoryError("all of it")


@app.task(base=DLQTask)
def is_killed():
    unless_fixed(Exception) if FIXED.exists() else os.kill(os.getpid(), signal.SIGKILL)


@app.task(base=DLQTask, time_limit=1)
def hangs():
    while not FIXED.exists():
        time.sleep(0.05)


@app.task(base=DLQTask)
def returns_a_file():
    return object() if not FIXED.exists() else None


@app.task(base=DLQTask)
def add(numbers, more=0):
    return sum(numbers) + more if isinstance(numbers, list) else numbers + more


@app.task(base=DLQTask)
def total(numbers):
    """The body of a chord, whose runs are counted."""
    count("total")
    return sum(numbers)


@app.task(base=DLQTask)
def tell(task_id):
    """An errback of a task."""
    say("told", task_id)


@app.task(base=DLQTask)
def waits_for(x, name):
    """Waits until there is a file of that name."""
    wait_until_there(name)
    return x


def wait_until_there(name):
    while not FIXED.with_name(name).exists():
        time.sleep(0.02)


@app.task(base=DLQTask)
def member(x):
    unless_fixed(KeyError(x))
    return x


@app.task(base=DLQTask, acks_late=True)
def late(x=0):
    count(f"late-{x}")
    unless_fixed(ValueError("late and wrong"))
    return x


class GivesBack(DLQTask):
    def on_failure(self, exc, *_):
        raise Reject(exc, requeue=True)


@app.task(base=GivesBack, acks_late=True)
def gives_back(name, in_body):
    """Gives its message back, each time it runs."""
    count(f"gives_back-{name}")
    if in_body:
        raise Reject("not mine", requeue=True)
    raise ValueError("not mine")


@app.task(base=DLQTask, bind=True, max_retries=8, retry_backoff=0.01, retry_backoff_max=0.01)
def retries_twice(self):
    """Asks for a retry, goes on, and fails in a way that is retried, too."""
    count("retries_twice")
    self.retry(throw=False, countdown=0)
    raise ConnectionError("the bank is down")


@worker_init.connect
def remember_worker(**_):
    os.environ["PROJ_WORKER_PID"] = str(os.getpid())


def worker_pid():
    """The id of the process that runs the pool: the parent of this one, or with threads, this one."""
    return int(os.environ["PROJ_WORKER_PID"])


def say(name, word):
    """Append a line to a file that all processes share."""
    with FIXED.with_name(name).open("a") as file:
        file.write(f"{word}\n")


@app.task(base=DLQTask, bind=True, max_retries=1)
def notes_its_run(self):
    run = self.dlq
    words = {
        "key": run.key,
        "redrive": run.redrive,
        "attempt": run.attempt,
        "failed": str(run.first_failed_at),
    }
    say("runs", json.dumps(words))
    unless_fixed(ConnectionError("the bank is down"))


@app.task(base=DLQTask, acks_late=True)
def innocent(x, seconds=0.0):
    say("started", f"{x} {worker_pid()}")
    time.sleep(seconds)
    say("done", x)


@app.task(base=DLQTask, acks_late=True)
def segfaults():
    say("segfaulted", os.getpid())
    os.kill(os.getpid(), signal.SIGSEGV)


@app.task(base=DLQTask, acks_late=True)
def dies_once():
    if count("dies_once") == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(base=DLQTask, acks_late=True)
def kills_its_worker(innocent):
    """Kills the whole worker: the first two times once ``innocent`` runs in it, later at once."""
    started, killed = FIXED.with_name("started"), FIXED.with_name("killed")
    if not killed.exists() or len(killed.read_text().splitlines()) < 2:
        deadline = time.monotonic() + 30.0
        while time.monotonic() < deadline and (
            not started.exists() or innocent not in running(started)
        ):
            time.sleep(0.02)
    say("killed", worker_pid())
    kill_worker()


def kill_worker():
    """With its pool: without the parent, a process of it may still finish its task."""
    parent = worker_pid()
    pool = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    others = {int(pid) for pid in pool} - {os.getpid()}
    for pid in (parent, *others, os.getpid()):
        with contextlib.suppress(ProcessLookupError):  # the kernel was faster
            os.kill(pid, signal.SIGKILL)


def running(started):
    """The arguments of the tasks that were started in this worker."""
    lines = [line.split() for line in started.read_text().splitlines()]
    return {int(x) for x, parent in lines if int(parent) == worker_pid()}
