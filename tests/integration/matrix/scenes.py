"""What workers go through while the modes of a scene are under way."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

from matrix.mode import CAN_CANCEL, CELERY, Mode, Seen, Watched, minor
from matrix.stage import Stage, Worker
from project import wait_for
from proxy import Proxy

#: Seconds within which a scene comes to its end on a busy machine.
PATIENCE_S = 75.0
#: A task that kills its worker gets this many workers; its letter must come before.
WORKERS_TO_KILL = 6


@dataclass
class Play:
    """The modes of a scene on its stage."""

    stage: Stage
    modes: Sequence[Mode]
    watched: dict[str, Watched] = field(default_factory=dict)
    #: Messages that are still on the queue when all is over.
    left: int = -1

    def send(self, *parts: str) -> list[Mode]:
        """Send the messages of ``parts``; returns their modes."""
        return self.send_these([mode for mode in self.modes if mode.part in parts])

    def send_these(self, modes: list[Mode]) -> list[Mode]:
        for mode in modes:
            self.watched[mode.id] = mode.send(self.stage)
        return modes

    def seen(self) -> dict[str, Seen]:
        """The traces of each message so far."""
        letters = self.stage.letters()
        return {name: self.stage.seen(watched, letters) for name, watched in self.watched.items()}

    def wait_for_ends(self) -> None:
        """Wait until each message has come to its end, or :data:`PATIENCE_S`. Tests show which has not."""
        deadline = time.monotonic() + PATIENCE_S
        while not self._all_ended() and time.monotonic() < deadline:
            time.sleep(0.2)

    def _all_ended(self) -> bool:
        seen = self.seen()
        broker, pool = self.stage.broker, self.stage.pool
        sent = [mode for mode in self.modes if mode.id in seen]
        return all(mode.end_on(broker, pool).holds(seen[mode.id]) for mode in sent)

    def wait_until_started(self, modes: Sequence[Mode]) -> None:
        for mode in modes:
            name = f"started-{self.watched[mode.id].task_id}"
            wait_for(f"{mode.id} to be started", lambda name=name: self.stage.counted(name))
        if self.stage.pool != "solo":  # there the parent runs the body, and cannot answer
            wait_for("the worker's parent to know it", lambda: self._are_known(modes))

    def _are_known(self, modes: Sequence[Mode]) -> bool:
        """Whether the worker's parent knows that the bodies began, and has acknowledged the messages that it
        acknowledges then. Bodies may begin earlier."""
        if self.stage.broker == "sqs":  # which has no remote control
            late = [mode for mode in self.modes if mode.part == "eta" and mode.id in self.watched]
            late += [mode for mode in modes if mode.id.endswith("-late")]
            return self.stage.held() == len(late)
        known = self.stage.project.active()
        tasks = [known.get(self.watched[mode.id].task_id) for mode in modes]
        return all(
            task and (task["acknowledged"] or task["name"].endswith("-late")) for task in tasks
        )

    def wait_until_received(self, worker: Worker, modes: Sequence[Mode]) -> None:
        """Wait until ``worker`` holds the messages of ``modes``."""
        for mode in modes:
            worker.wait_to_say(f"[{self.watched[mode.id].task_id}] received")

    def wait_until_held(self, worker: Worker, modes: Sequence[Mode]) -> None:
        """Wait until the messages of ``modes``, which have an ETA, are where they wait for it."""
        if self.stage.broker != "quorum":  # there the broker itself holds them
            self.wait_until_received(worker, modes)

    def rounds(self) -> Iterator[tuple[list[Mode], bool]]:
        """The modes whose tasks run when it happens, as many at a time as a worker runs; and whether
        they are the last. Only the first round may leave a slot free. In the last one, the prefetched message
        would run in it, and run again: Celery may not have seen its acknowledgement when it shuts down."""
        running, slots = [mode for mode in self.modes if mode.part == "running"], self.stage.slots
        for end in range(len(running) % slots or slots, len(running) + 1, slots):
            yield running[max(0, end - slots) : end], end == len(running)


def calm(play: Play) -> None:
    """Messages are on the queue; a worker comes and runs them."""
    play.send("")
    with play.stage.worker():
        play.send("live")
        play.wait_for_ends()


def without_worker(play: Play) -> None:
    """Nothing is sent."""
    for mode in play.modes:
        play.watched[mode.id] = Watched(uuid.uuid4().hex)
    calls = [f"{mode.part}={play.watched[mode.id].task_id}" for mode in play.modes]
    project = play.stage.project
    subprocess.run(
        [sys.executable, "-m", "matrix.calls", *calls],
        env=project.environment, cwd=project.directory, check=True, timeout=60,
    )  # fmt: skip


def _interrupted(play: Play, interrupt: Callable[[Worker], object]) -> None:
    """A worker is interrupted while it runs tasks and holds others; another comes after it."""
    stage = play.stage
    for running, last in play.rounds():
        with stage.worker() as worker:
            if last:
                play.wait_until_held(worker, play.send("eta"))
            play.wait_until_started(play.send_these(running))
            _let_the_loop_turn(stage)
            # Otherwise recovery waits for the broker, which may deliver the message again.
            if stage.pool != "solo":
                wait_for("acknowledgements to be noted", stage.all_noted)
            if last:
                prefetched = play.send("prefetched")
                if stage.pool in ("prefork", "threads"):  # the others take none while they are busy
                    play.wait_until_received(worker, prefetched)
            interrupt(worker)
            worker.wait_to_end()
        stage.time_out_deliveries()
        with stage.released(), stage.worker():
            play.wait_for_ends()


def killed(play: Play) -> None:
    """SIGKILL, as from the kernel's out-of-memory killer."""
    _interrupted(play, Worker.kill)


def container_stopped(play: Play) -> None:
    """SIGTERM, and SIGKILL while it still waits for its tasks."""

    def stop(worker: Worker) -> None:
        worker.stop_warm()
        worker.kill()

    _interrupted(play, stop)


def _let_the_loop_turn(stage: Stage) -> None:
    if stage.pool == "gevent" and minor(CELERY) < (5, 7):
        # There, acknowledgements are sent when the loop turns: with its next event, for which it waits
        # two seconds at most. If that is a message for which the pool has no slot, it waits for the slot
        # instead, and a worker that is killed then has not acknowledged the tasks that run.
        time.sleep(2.5)


def warm_shutdown(play: Play) -> None:
    """SIGTERM; running tasks come to their end, and the rest goes back to the queue."""

    def stop(worker: Worker) -> None:
        worker.stop_warm()
        with play.stage.released():
            worker.wait_to_end()

    _interrupted(play, stop)


def cold_shutdown(play: Play) -> None:
    """SIGQUIT: running tasks are cancelled, if the pool can do that."""
    _interrupted(play, partial(_stop_cold, play.stage))


def soft_shutdown(play: Play) -> None:
    """SIGQUIT with ``worker_soft_shutdown_timeout``: running tasks get that time."""
    _interrupted(play, partial(_stop_cold, play.stage))


def _stop_cold(stage: Stage, worker: Worker) -> None:
    worker.stop_cold()
    if stage.pool in CAN_CANCEL:
        return
    worker.wait_to_say("cannot be cancelled")
    with stage.released():
        worker.wait_to_end()


def connection_lost(play: Play) -> None:
    """The connection to the broker breaks while tasks run."""
    stage = play.stage
    parts = urlsplit(stage.project.broker)
    proxy = Proxy(parts.hostname or "", parts.port or 0)
    through = parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{proxy.port}"))
    stage.project.environ["PROJ_BROKER"] = through.geturl()
    try:
        for running, last in play.rounds():
            # A message that was delivered again may still run when the worker has to end.
            with contextlib.ExitStack() as until_it_has_ended, stage.worker() as worker:
                if last:
                    play.wait_until_held(worker, play.send("eta"))
                play.wait_until_started(play.send_these(running))
                proxy.sever()
                if stage.pool != "solo":  # which is with its task
                    worker.wait_to_say("Connection to broker lost")
                until_it_has_ended.enter_context(stage.released())
                wait_for("the tasks to end", lambda these=running: _have_ended(play, these))
                worker.wait_to_say("Connection to broker lost")
                stage.time_out_deliveries()
                play.wait_for_ends()
                # The next worker would run a second copy, for which nothing would release it.
                wait_for("second copies to be taken", lambda: not stage.waiting())
    finally:
        proxy.close()


def _have_ended(play: Play, modes: Sequence[Mode]) -> bool:
    seen = play.seen()
    return all(seen[mode.id].finished or seen[mode.id].letters for mode in modes)


def poison(play: Play) -> None:
    """A task kills its worker, and the next one."""
    stage = play.stage
    play.send("")
    for _ in range(WORKERS_TO_KILL):
        worker = stage.worker_that_may_die()
        try:
            wait_for("the worker or its end", lambda w=worker: _over(play, w), PATIENCE_S)
            if worker.process.poll() is None:
                worker.stop_warm()
                worker.wait_to_end()
                return
        finally:
            worker.kill()
        stage.time_out_deliveries()


def _over(play: Play, worker: Worker) -> bool:
    return worker.process.poll() is not None or play._all_ended()


#: Every scene by its name.
SCENES: dict[str, Callable[[Play], None]] = {
    scene.__name__: scene
    for scene in (
        calm, without_worker, killed, container_stopped, warm_shutdown, cold_shutdown,
        soft_shutdown, connection_lost, poison,
    )
}  # fmt: skip
SCENES["backend_away"] = calm

#: Settings of the workers of a scene.
SETTINGS: dict[str, dict[str, object]] = {
    "connection_lost": {"worker_enable_prefetch_count_reduction": False},
    "soft_shutdown": {"worker_soft_shutdown_timeout": 3.0},
    "backend_away": {
        "result_backend_transport_options": {
            "retry_policy": {"max_retries": 1, "interval_start": 0, "interval_max": 0.1}
        }
    },
}
