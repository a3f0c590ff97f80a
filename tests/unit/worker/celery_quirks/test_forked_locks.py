"""The locks of kombu's properties in a process that is forked while another thread holds one."""

import subprocess
import sys

import pytest

SCRIPT = """
import os, threading
from celery import Celery
from kombu.transport.redis import Channel
from celery_dlq import DeadLetterQueue
from celery_dlq.worker.celery_quirks.pools import renew_locks_after_fork

app = Celery("shop", broker="redis://127.0.0.1:1", set_as_current=False)
app.dead_letter_queue = DeadLetterQueue.of(app)
if {is_renewed}:
    renew_locks_after_fork(app)
is_held, may_end = threading.Event(), threading.Event()

def hold():
    with vars(Channel)["client"].lock:
        is_held.set()
        may_end.wait()

threading.Thread(target=hold).start()
is_held.wait()
pid = os.fork()
if pid == 0:
    is_free = vars(Channel)["client"].lock.acquire(blocking=False)
    os._exit(0 if is_free else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
may_end.set()
"""


@pytest.mark.parametrize(("is_renewed", "status"), [(True, "0"), (False, "1")])
def test_a_lock_that_another_thread_holds_at_the_fork(is_renewed, status):
    script = SCRIPT.format(is_renewed=is_renewed)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == status
