"""The harm that is done to the workers, the broker, the store and the disk, and how often."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from chaos.disk import Disk
from chaos.servers import Server
from chaos.workers import Worker, Workers

#: The length of the run for which :attr:`Harm.times` is meant, in seconds.
FULL_RUN_S = 600.0
#: The part of a run in which harm is done; before it, workers warm up; after it, they catch up.
_FIRST, _LAST = 0.05, 0.95


@dataclass(frozen=True)
class Stage:
    """Everything that can be harmed."""

    broker: Server
    store: Server
    disk: Disk
    workers: Workers
    random: Random

    def some_worker(self) -> Worker:
        """One that is at work, if any is."""
        ready = [worker for worker in self.workers.all if worker.is_ready]
        return self.random.choice(ready or self.workers.all)

    def pause(self, least: float, most: float) -> None:
        """How long an outage lasts, in seconds."""
        time.sleep(self.random.uniform(least, most))


@dataclass(frozen=True)
class Harm:
    name: str
    #: In a run of ten minutes; at least once in a shorter one.
    times: int
    #: Does the harm, has it repaired, and returns the name of what it hit.
    do: Callable[[Stage], str]
    what: str
    #: Whether workers lose their connection to the broker.
    cuts: bool = False

    def times_in(self, seconds: float) -> int:
        return max(1, round(self.times * seconds / FULL_RUN_S))


def kill_child(stage: Stage) -> str:
    worker = stage.some_worker()
    pool = worker.pool
    if not pool:
        return f"{worker.name} has no child just now"
    victim = stage.random.choice(pool)
    _kill(victim)
    return f"child {victim} of {worker.name}"


def kill_pool(stage: Stage) -> str:
    worker = stage.some_worker()
    for child in worker.pool:
        _kill(child)
    return worker.name


def kill_worker(stage: Stage) -> str:
    worker = stage.some_worker()
    worker.kill()
    worker.start()
    return worker.name


def stop_then_kill_worker(stage: Stage) -> str:
    worker = stage.some_worker()
    worker.signal(signal.SIGTERM)
    if not worker.wait(stage.random.uniform(0.1, 2.0)):
        worker.kill()
    worker.start()
    return worker.name


def cold_shutdown(stage: Stage) -> str:
    worker = stage.some_worker()
    worker.signal(signal.SIGQUIT)
    if not worker.wait(10.0):
        worker.kill()
    worker.start()
    return worker.name


def kill_broker(stage: Stage) -> str:
    return _restart(stage, stage.broker, stage.broker.kill)


def stop_broker(stage: Stage) -> str:
    return _restart(stage, stage.broker, stage.broker.stop)


def kill_broker_and_worker(stage: Stage) -> str:
    worker = stage.some_worker()
    stage.broker.kill()
    worker.kill()
    stage.pause(0.5, 2.0)
    worker.start()
    stage.broker.start()
    return f"{stage.broker.name}, {worker.name}"


def kill_store(stage: Stage) -> str:
    return _restart(stage, stage.store, stage.store.kill)


def freeze_store(stage: Stage) -> str:
    stage.store.freeze()
    stage.pause(1.5, 5.0)
    stage.store.thaw()
    return stage.store.name


def kill_store_and_worker(stage: Stage) -> str:
    worker = stage.some_worker()
    stage.store.kill()
    stage.pause(1.0, 3.0)
    worker.kill()
    stage.store.start()
    worker.start()
    return f"{stage.store.name}, {worker.name}"


def fill_disk(stage: Stage) -> str:
    stage.store.kill()
    stage.pause(0.0, 2.0)
    stage.disk.fill()
    stage.pause(2.0, 4.0)
    stage.disk.clear()
    stage.store.start()
    return f"{stage.disk.directory}, {stage.store.name}"


HARMS = (
    Harm("kill child", 60, kill_child, "SIGKILL of one process of a pool"),
    Harm("kill pool", 6, kill_pool, "SIGKILL of all processes of a pool"),
    Harm("kill worker", 18, kill_worker, "SIGKILL of a whole worker"),
    Harm("evict worker", 6, stop_then_kill_worker, "SIGTERM, and SIGKILL within 2 s"),
    Harm("cold shutdown", 4, cold_shutdown, "SIGQUIT of a worker"),
    Harm("kill broker", 4, kill_broker, "SIGKILL of the broker; back in 1 to 4 s", True),
    Harm("stop broker", 3, stop_broker, "SIGTERM of the broker; back in 1 to 4 s", True),
    Harm(
        "kill broker and worker",
        2,
        kill_broker_and_worker,
        "the broker, and a worker while it is down",
        True,
    ),
    Harm("kill store", 5, kill_store, "SIGKILL of the database; back in 1 to 4 s"),
    Harm("freeze store", 4, freeze_store, "the database hangs for 1.5 to 5 s"),
    Harm(
        "kill store and worker",
        2,
        kill_store_and_worker,
        "the database, and a worker while it is down",
    ),
    Harm("fill disk", 3, fill_disk, "no database, and the spool's disk is full for 2 to 4 s"),
)


def schedule(seconds: float, random: Random) -> list[tuple[float, Harm]]:
    """The harms of a run of ``seconds``, each with the second in which it is due, in this order."""
    due = [
        (random.uniform(_FIRST, _LAST) * seconds, harm)
        for harm in HARMS
        for _ in range(harm.times_in(seconds))
    ]
    return sorted(due, key=lambda pair: pair[0])


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended by itself
        os.kill(pid, signal.SIGKILL)


def _restart(stage: Stage, server: Server, end: Callable[[], None]) -> str:
    end()
    stage.pause(1.0, 4.0)
    server.start()
    return server.name
