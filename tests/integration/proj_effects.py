"""The app of ``proj`` with a task that writes what it did into a table, one that is half cured, and quick
leases.

Run as a program, it is a redriver that can be killed: each line it reads is an operation and how many claims
it may make. A process of its own goes on with that operation, and is killed at some moment after that many
claims; without a number it goes on to the end. Answered is what it exited with.
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
from celery_dlq.operation import OperationState
from celery_dlq.redrive import lease, ledger
from celery_dlq.upkeep import operations

lease.LEASE_S, lease.TRY_S = 0.5, 0.1
operations.LOOK_S = float(os.environ.get("PROJ_LOOK_S", "0.2"))
ledger.LOOK_S, ledger.WAIT_S = 0.2, 0.02

#: Longest time between the claim that is to be the last, and the kill: about as long as a batch takes.
MOMENT_S = 0.02

#: One for each process: a pool child must not use its parent's connections.
_engines = {}


@app.task(base=DLQTask, name="proj.effect")
def effect(number):
    """Leaves a row for each time that it ran."""
    engine = _engines.get(os.getpid())
    if engine is None:
        engine = _engines[os.getpid()] = create_engine(os.environ["PROJ_STORE"])
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO effect (queue, number) VALUES (:queue, :number)"),
            {"queue": os.environ["PROJ_QUEUE"], "number": number},
        )


@app.task(base=DLQTask, name="proj.half_cured")
def half_cured(number):
    """What a fix makes of it that is none for odd numbers."""
    if number % 2:
        raise ValueError("odd")


def redrive(operation_id, claims):
    """Go on with the operation, over all troubles, until it is done."""
    if claims is not None:
        ledger.Ledger.take = armed(ledger.Ledger.take, claims)
    dlq = DeadLetterQueue.of(app)
    while dlq.operation(operation_id).state is not OperationState.DONE:
        try:
            dlq.resume(operation_id, who="redriver")
        except OperationError:
            time.sleep(0.02)  # the lease of the one that was killed


def armed(take, claims):
    """``take``, which is deadly within a moment once it has claimed so often."""
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
