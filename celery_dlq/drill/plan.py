"""What the processes of a drill share: names, addresses, and the log of the tasks' runs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from celery_dlq.base.process import private_opener

#: The tasks of a drill, by whether they acknowledge late.
TASKS = {False: "celery_dlq.drill.early", True: "celery_dlq.drill.late"}


class Body(str, Enum):
    """What the body of a drill's task does."""

    #: Sleep, and succeed.
    WORK = "work"
    FAIL = "fail"
    #: Fail with a transient error at the first attempt.
    RECOVER = "recover"
    #: Fail unless the message was redriven.
    HEAL = "heal"
    #: Kill the process.
    DIE = "die"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The names and addresses of one drill. It has passwords, so its file is private."""

    #: As after ``celery -A``.
    app: str
    #: Also the name of its exchange.
    queue: str
    exchange_type: str
    queue_arguments: Mapping[str, Any]
    directory: str
    broker_url: str
    #: Additions to ``broker_transport_options``.
    transport_options: Mapping[str, Any]
    store_url: str
    spool_dir: str
    recorder_dir: str
    #: None for the pool of the app's configuration.
    pool: str | None

    def write(self) -> None:
        """Store it in its directory."""
        path = os.path.join(self.directory, "plan.json")
        with open(path, "w", opener=private_opener) as file:
            json.dump(asdict(self), file)

    @classmethod
    def read(cls, directory: str) -> Plan:
        """The plan in ``directory``."""
        return cls(**json.loads(Path(directory, "plan.json").read_text()))

    @property
    def runs(self) -> Runs:
        """The log of the tasks' runs."""
        return Runs(Path(self.directory, "runs"))


class Runs:
    """A file in which the tasks of a drill note that they began or finished."""

    STARTED, FINISHED, READY = "started", "finished", "ready"

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, what: str, task_id: str = "") -> None:
        """Append a line. Lines of several processes do not mix, because each is short."""
        with self._path.open("a") as file:
            file.write(f"{what} {os.getpid()} {task_id}\n")

    def pids(self, what: str, task_id: str = "") -> list[int]:
        """The processes that have noted ``what``, the oldest first."""
        try:
            lines = [line.split(" ") for line in self._path.read_text().splitlines()]
        except FileNotFoundError:
            return []
        return [int(pid) for noted, pid, owner in lines if (noted, owner) == (what, task_id)]
