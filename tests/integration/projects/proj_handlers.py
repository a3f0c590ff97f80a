"""The app of ``proj`` with repair handlers, and quick rounds of their dispatcher."""

import os
import signal
import sys
import time
from itertools import count as numbers

from billiard.exceptions import SoftTimeLimitExceeded
from celery.signals import worker_process_init
from proj import FIXED, app, count, say

from celery_dlq import DeadLetterQueue, Discard, DLQTask, Filter, Leave, Redrive, Ticket
from celery_dlq.store import tenure
from celery_dlq.upkeep import chores, periodic
from celery_dlq.upkeep.automation import calling, dispatcher

tenure.LEASE_S, tenure.TRY_S = 1.0, 0.2
periodic.TRY_S = chores.TRY_S = 0.2
chores.LOOK_S = 0.1
dispatcher.LOOK_S, dispatcher.SWEEP_S, dispatcher.AGAIN_S = 0.1, 0.2, 2.0
dispatcher.HARD_S, calling.LOST_S, calling.AGAIN_S = 1.0, 3.0, 0.1

dlq = DeadLetterQueue.of(app)


@worker_process_init.connect
def say_whether_the_store_is_imported(**_):
    say("imported", str("celery_dlq.store.sql" in sys.modules))


@app.task(base=DLQTask, name="proj.pays")
def pays(number, currency):
    say("paid", f"{number} {currency}")
    if currency == "EUX":
        raise ValueError("bad currency")


@app.task(base=DLQTask, name="proj.adds")
def adds(number):
    raise KeyError(number)


@dlq.handler(where=Filter(task="proj.pays"))
def in_euros(letter):
    say("called", letter.task_id)
    return Redrive(kwargs={**letter.kwargs, "currency": "EUR"})


# The next two do not wait for their timeouts, which a busy machine must not reach.
@dlq.handler(where=Filter(task="proj.dies_once"), timeout=5)
def dies_once(letter):
    if count("dies_once") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return Discard("a duplicate")


@dlq.handler(where=Filter(task="proj.dies"), timeout=3)
def dies(letter):
    say("called", letter.task_id)
    os.kill(os.getpid(), signal.SIGKILL)


@dlq.handler(where=Filter(task="proj.sleeps"), timeout=1)
def sleeps(letter):
    time.sleep(60)


@dlq.handler(where=Filter(task="proj.hangs"), timeout=1)
def hangs(letter):
    say("called", letter.task_id)
    for _ in numbers():
        try:
            time.sleep(0.1)
        except SoftTimeLimitExceeded:
            say("limited", letter.task_id)


@dlq.handler(where=Filter(task="proj.raises"))
def raises(letter):
    raise KeyError("a bug")


@dlq.handler(where=Filter(task="proj.waits_for_it"))
def waits_for_it(letter):
    say("called", letter.task_id)
    while not FIXED.exists():
        time.sleep(0.02)
    return Discard("a duplicate")


@dlq.handler(where=Filter(task="proj.closes"), timeout=1)
def closes(letter):
    say("called", letter.task_id)
    time.sleep(0.01)
    return Discard("a duplicate")


@dlq.handler(where=Filter(task="proj.many"), once_per_group=True)
def ticketing(letter):
    if letter.ticket is not None:
        return Leave()
    number = count("tickets")
    # Long enough for others to come in between.
    time.sleep(0.5)
    return Ticket(f"https://tickets/{number}")
