"""Tasks that note that they have run, for workers that die when Redis has given them a message.

``PROJ_DIES`` makes a worker kill its whole process group in that moment, before kombu notes the message.
"""

import os
import signal
import time

from kombu.transport.redis import QoS
from proj import FIXED, app
from proj_recorded import note

from celery_dlq import DLQTask


def die(*_):
    os.killpg(os.getpgrp(), signal.SIGKILL)


if os.environ.get("PROJ_DIES"):
    QoS.append = die


@app.task(base=DLQTask, name="proj.ran", ignore_result=True)
def ran(number):
    note("ended", number)


@app.task(base=DLQTask, name="proj.gated", ignore_result=True)
def gated(number):
    while not FIXED.exists():
        time.sleep(0.02)
    note("ended", number)
