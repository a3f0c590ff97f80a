"""The app of ``proj_recorded`` with tasks that run until they are released; its workers soon notice one that
is gone, and that a task which must be alone is."""

import os
import time

from proj import FIXED, say
from proj_recorded import app, note

from celery_dlq import DLQTask
from celery_dlq.upkeep import recovery
from celery_dlq.worker.admission import isolation

__all__ = ["app"]

recovery.LOOK_S = 0.2
recovery.ROUND_S = float(os.environ.get("PROJ_ROUND_S", recovery.ROUND_S))
isolation.TICK_S = 0.01

round_once = recovery.RecoveryThread.round


def round_and_say(self):
    round_once(self)
    say("rounds", "")


recovery.RecoveryThread.round = round_and_say


@app.task(base=DLQTask, name="proj.released", ignore_result=True)
def released(number, fails=False):
    note("began", number)
    while not FIXED.with_name("release").exists():
        time.sleep(0.02)
    if fails:
        raise ValueError(f"number {number} is meant to fail")
    note("ended", number)
