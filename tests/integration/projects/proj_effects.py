"""The app of ``proj`` with a task that writes its effects into a table, a task that the fix repairs for half
of its arguments, and short leases.

``PROJ_EFFECTS`` is the URL of another database than the store for that table.

Run as a program, it is a redriver that can be killed. Each line of its input is an operation and a number of
claims. A new process continues that operation, and is killed at some moment after that many claims; without a
number, it runs to the end. The answer is its exit status.
"""

import os
import random
import signal
import sys
import threading
import time

from proj import app
from sqlalchemy import create_engine, text

from celery_dlq import DeadLetterQueue, DLQTask
from celery_dlq.errors import OperationError
from celery_dlq.model.operation import ENDED
from celery_dlq.redrive import ledger
from celery_dlq.store import tenure
from celery_dlq.upkeep import chores, periodic

tenure.LEASE_S, tenure.TRY_S = 0.5, 0.1
chores.TRY_S = periodic.TRY_S = periodic.IDLE_S = float(os.environ.get("PROJ_LOOK_S", "0.2"))
ledger.LOOK_S, ledger.WAIT_S = 0.2, 0.02

#: Longest time between the claim that is to be the last, and the kill: about as long as a batch takes.
MOMENT_S = 0.02

#: One for each process: a pool child must not use its parent's connections.
_engines = {}


@app.task(base=DLQTask, name="proj.effect")
def effect(number):
    """Leaves a row for each of its runs."""
    engine = _engines.get(os.getpid())
    if engine is None:
        url = os.environ.get("PROJ_EFFECTS", os.environ["PROJ_STORE"])
        engine = _engines[os.getpid()] = create_engine(url)
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO effect (queue, number) VALUES (:queue, :number)"),
            {"queue": os.environ["PROJ_QUEUE"], "number": number},
        )


@app.task(base=DLQTask, name="proj.half_fixed")
def half_fixed(number):
    """The fix does not work for odd numbers."""
    if number % 2:
        raise ValueError("odd")


def redrive(operation_id, claims):
    """Continue the operation, through all errors, until it has ended."""
    if claims is not None:
        ledger.Ledger.take = armed(ledger.Ledger.take, claims)
    dlq = DeadLetterQueue.of(app)
    while dlq.redrives.get(operation_id).state not in ENDED:
        try:
            dlq.redrives.resume(operation_id, who="redriver")
        except OperationError:
            time.sleep(0.02)  # the lease of the one that was killed


def armed(take, claims):
    """``take``, which kills its process within a moment once it has claimed this often."""
    made = 0

    def call(self):
        nonlocal made
        taken = take(self)
        made += bool(taken.letters)
        if made == claims:
            moment = random.uniform(0.0, MOMENT_S)
            threading.Timer(moment, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return taken

    return call


def main():
    for line in sys.stdin:
        operation_id, *claims = line.split()
        child = os.fork()
        if child == 0:
            redrive(operation_id, int(claims[0]) if claims else None)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
