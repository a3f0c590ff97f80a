"""Tasks that note that they have run, for workers that die when Redis has given them a message.

``PROJ_DIES`` makes a worker kill its whole process group in that moment, before it knows the message.
``PROJ_REFUSED`` lets it take messages as kombu does, as if Redis refused another way.
"""

import os
import signal
import time

from kombu.transport.virtual import Transport
from proj import FIXED, app
from proj_recorded import note

from celery_dlq import DLQTask
from celery_dlq.worker import consumer as module


def die(transport, message, queue):
    if queue == os.environ["PROJ_QUEUE"]:  # and not that of the answers of other workers
        os.killpg(os.getpgrp(), signal.SIGKILL)
    deliver(transport, message, queue)


deliver = Transport._deliver
if os.environ.get("PROJ_DIES"):
    Transport._deliver = die
if os.environ.get("PROJ_REFUSED"):
    module.why_not = lambda *_: "the test refuses it"


@app.task(base=DLQTask, name="proj.ran", ignore_result=True)
def ran(number):
    note("ended", number)


@app.task(base=DLQTask, name="proj.gated", ignore_result=True)
def gated(number):
    while not FIXED.exists():
        time.sleep(0.02)
    note("ended", number)
