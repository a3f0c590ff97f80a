"""The kill test: tasks of all kinds, workers, a broker and a database, all killed again and again; at the
end every task that was sent must have ended in exactly one place.

    PYTHONPATH=tests python -m chaos.run --pair redis-postgresql --seconds 600 --tasks 20000
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from chaos import account
from chaos.clusters import Cluster
from chaos.disk import Disk
from chaos.harms import FULL_RUN_S, Stage, schedule
from chaos.kinds import mix
from chaos.pairs import PAIRS
from chaos.producer import Producer
from chaos.redriver import Redriver
from chaos.report import Report, story
from chaos.servers import Server, ServerError
from chaos.workers import TESTS, Workers

from celery_dlq import DeadLetterQueue

WORKERS = 3
#: The part of a run in which tasks are sent.
SENDING = 0.8
#: Seconds in which nothing more has ended, after which the other tasks count as lost. Longer than Redis keeps
#: the messages that a killed worker held, and than it takes until a message that has vanished is sent again.
#: RabbitMQ moves a message with a countdown from one quorum queue to the next one. If a node was killed
#: before it had confirmed that, the message is moved again after three minutes.
QUIET_S = 240.0
#: Seconds after an outage of the broker in which a worker that gives up does so because of it.
CUT_S = 15.0
#: The most tasks that ended in the wrong place whose story is printed.
STORIES = 20
#: Exit statuses.
ALL_WELL, DIFFERENCES, NOT_RUN = 0, 1, 2


class Run:
    """One run on one pair of broker and store."""

    def __init__(self, arguments: argparse.Namespace, directory: Path, stack: contextlib.ExitStack):
        self._arguments, self._directory = arguments, directory
        self._began = time.monotonic()
        broker, store = PAIRS[arguments.pair]
        self.broker = self._serve(broker, "broker", stack)
        self.store = self._serve(store, "store", stack)
        self.disk = Disk(directory / "spool")
        stack.callback(self.disk.close)
        self.environment = self._environment()
        os.environ.update(self.environment)
        self.workers = Workers(WORKERS, directory, self.environment)
        stack.callback(self.workers.kill)
        self.harmed: Counter[str] = Counter()
        self._cut_at = float("-inf")

    def _serve(self, make: Any, role: str, stack: contextlib.ExitStack) -> Server:
        server: Server = make(self._directory / role)
        stack.callback(server.close)
        server.start()
        return server

    def _environment(self) -> dict[str, str]:
        ledger = self._directory / "ledger"
        ledger.mkdir()
        redis = self.broker.url.startswith(("redis", "sentinel"))
        return {
            **os.environ,
            "CHAOS_BROKER": self.broker.url,
            "CHAOS_BACKEND": self.broker.url if redis else f"db+{self.store.url}",
            "CHAOS_STORE": self.store.url,
            "CHAOS_SPOOL": str(self.disk.directory),
            "CHAOS_LEDGER": str(ledger),
            # The code of this checkout, even if the package is installed.
            "PYTHONPATH": os.pathsep.join(map(str, (TESTS, TESTS.parent))),
        }

    def execute(self) -> Report:
        """Send, harm, wait until everything has settled, and make the account."""
        from chaos.workload import app, ledger  # reads the environment

        self._app, self._ledger = app, ledger
        self._celery("dlq", "db", "upgrade")
        self.workers.start()
        self._say(f"{WORKERS} workers are ready")
        seconds, seed = self._arguments.seconds, self._arguments.seed
        fails_over = isinstance(self.broker, Cluster)
        kinds = mix(self._arguments.tasks, Random(f"{seed} kinds"), sent_back=fails_over)
        producer = Producer(app, kinds, seconds * SENDING, Random(f"{seed} tasks"))
        redriver = Redriver(app)
        redriver.start()
        producer.start()
        try:
            self._harm(seconds, Random(f"{seed} harms"))
            self._until_sent(producer)
            self._until_settled(producer)
        finally:
            producer.stop()
            redriver.stop()
        self.workers.stop()
        self._bring_back()
        return self._report(producer)

    def _harm(self, seconds: float, random: Random) -> None:
        stage = Stage(self.broker, self.store, self.disk, self.workers, random)
        began = time.monotonic()
        for due, harm in schedule(seconds, random):
            while time.monotonic() < began + due:
                self._revive()
                time.sleep(0.1)
            self._say(f"{harm.name} …")
            self._say(f"{harm.name}: {harm.do(stage)}")
            self._cut_at = time.monotonic() if harm.cuts else self._cut_at
            self.harmed[harm.name] += 1

    def _revive(self) -> None:
        self.workers.revive(cut=time.monotonic() < self._cut_at + CUT_S)

    def _until_sent(self, producer: Producer) -> None:
        while producer.is_alive():
            self._revive()
            producer.join(0.5)
        if len(producer.sent) < self._arguments.tasks:
            raise ServerError(
                "The producer has ended before it had sent all tasks; see its error above."
            )
        self._say(f"{len(producer.sent)} tasks sent")

    def _until_settled(self, producer: Producer) -> None:
        """Wait until everything has ended, or until nothing more ends."""
        left_before, changed = -1, time.monotonic()
        while True:
            self._revive()
            asked = time.monotonic()
            left = sum(not case.is_settled for case in self._cases(producer)) + self._held()
            if left == 0:
                return
            if left != left_before:
                self._say(f"{left} are under way")
                left_before, changed = left, time.monotonic()
            elif (
                time.monotonic() > changed + QUIET_S
            ):  # on a busy machine an answer may take that long
                return
            # Asking costs the workers processor time.
            time.sleep(max(1.0, 3 * (time.monotonic() - asked)))

    def _held(self) -> int:
        """Messages that the broker has not handed out yet, or whose acknowledgement it awaits."""
        return self.broker.messages(self._app.conf.task_default_queue)

    def _cases(self, producer: Producer) -> list[account.Case]:
        queue = DeadLetterQueue.of(self._app)
        letters = account.kept_elsewhere(
            queue.spool.files(), [worker.log for worker in self.workers.all]
        )
        letters.update(account.stored(queue.store))
        return account.cases(producer.sent, self._ledger.rows(), letters)

    def _bring_back(self) -> None:
        """Move the letters from the workers' logs and from the spool into the store, as an operator does."""
        queue = DeadLetterQueue.of(self._app)
        logs = [worker.log for worker in self.workers.all]
        self.from_logs = set(account.kept_elsewhere([], logs))
        self.from_spool = len(account.kept_elsewhere(queue.spool.files(), []))
        for log in logs:
            self._celery("dlq", "recover", str(log))
        self._celery("dlq", "recover")
        # For a person who looks for a missing letter: the disk is gone with the run.
        shutil.copytree(self.disk.directory, self._directory / "spool-left")

    def _report(self, producer: Producer) -> Report:
        store = DeadLetterQueue.of(self._app).store
        queue = self._app.conf.task_default_queue
        found = account.cases(
            producer.sent, self._ledger.rows(), account.stored(store), self.from_logs,
            self.broker.undone(queue),
        )  # fmt: skip
        return Report(
            pair=self._arguments.pair,
            seed=self._arguments.seed,
            elapsed_s=time.monotonic() - self._began,
            cases=found,
            deliveries=self._deliveries,
            harmed=self.harmed,
            from_logs=len(self.from_logs),
            from_spool=self.from_spool,
            unasked=self.workers.unasked,
            gave_up=self.workers.gave_up,
            had_no_pool=self.workers.had_no_pool,
            stalls=self.workers.stalls(),
            left=self._held(),
        )

    @property
    def _deliveries(self) -> int:
        from chaos.workload import DELIVERIES

        return DELIVERIES

    def _celery(self, *words: str) -> None:
        command = [sys.executable, "-m", "celery", "-A", "chaos.workload", *words]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        # 4: something was set aside, such as half a line of a worker that was killed while it wrote it.
        if done.returncode not in (0, 4):
            raise ServerError(f"{' '.join(words)}: {done.stdout}{done.stderr}")

    def _say(self, text: str) -> None:
        line = f"{time.monotonic() - self._began:7.1f} s  {text}"
        print(line, flush=True)
        with (self._directory / "timeline.log").open("a") as file:
            file.write(line + "\n")


def conduct(arguments: argparse.Namespace, directory: Path) -> Report:
    """One run, its servers and workers ended whatever happens."""
    with contextlib.ExitStack() as stack:
        return Run(arguments, directory, stack).execute()


def run_directory() -> Path:
    """A directory that the servers' users may enter."""
    directory = Path(tempfile.mkdtemp(prefix="dlq-chaos-"))
    directory.chmod(0o755)
    return directory


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--pair", choices=sorted(PAIRS), required=True)
    parser.add_argument("--seconds", type=float, default=FULL_RUN_S)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=None, help="of kinds, ids and harms")
    arguments = parser.parse_args(words)
    if arguments.seed is None:
        arguments.seed = Random().randrange(1_000_000)
    return arguments


def main(words: list[str]) -> int:
    arguments, directory = parse(words), run_directory()
    print(f"{arguments.pair}, seed {arguments.seed}, in {directory}", flush=True)
    try:
        report = conduct(arguments, directory)
    except ServerError as error:
        print(error, file=sys.stderr)
        return NOT_RUN
    print(report.text())
    if report.is_right:
        shutil.rmtree(directory)
        return ALL_WELL
    for case in report.wrong[:STORIES]:
        print(story(case, directory))
    return DIFFERENCES


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
