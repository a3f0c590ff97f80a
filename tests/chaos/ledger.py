"""What the tasks' bodies did: one line a row, in files that no harm to broker or store can reach.

Each process writes a file of its own, each row in one write, so that a row is there whole or not at all
however the process dies. A row is the side effect of the body that is counted.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

#: What a row says: the body began; it did its work, which is its last act; it gave up on purpose.
STARTED, FINISHED, IGNORED = "started", "finished", "ignored"


@dataclass(frozen=True)
class Row:
    task_id: str
    what: str
    attempt: int
    #: The broker says that it handed this message out before.
    redelivered: bool
    pid: int
    at: float


class Ledger:
    """The rows of one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._file: tuple[int, int] | None = None

    def write(self, task_id: str, what: str, attempt: int, redelivered: bool) -> None:
        """Append a row; the operating system has it when this returns."""
        row = Row(task_id, what, attempt, redelivered, os.getpid(), time.time())
        os.write(self._descriptor(), json.dumps(asdict(row)).encode() + b"\n")

    def rows(self) -> Mapping[str, Sequence[Row]]:
        """The rows of each task, in the order of time."""
        found = defaultdict(list)
        for path in self.directory.glob("*.jsonl"):
            # After the last end of a line there may be the beginning of one that is being written.
            for line in path.read_bytes().split(b"\n")[:-1]:
                row = Row(**json.loads(line))
                found[row.task_id].append(row)
        for rows in found.values():
            rows.sort(key=lambda row: row.at)
        return found

    def _descriptor(self) -> int:
        pid = os.getpid()
        if self._file is None or self._file[0] != pid:  # a forked child has its parent's
            path = self.directory / f"{pid}-{time.time_ns()}.jsonl"
            self._file = pid, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        return self._file[1]
