"""Plays scenes, each once in a test session however many rows of the matrix ask for it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from matrix.mode import Mode, Seen
from matrix.scenes import SCENES, SETTINGS, Play
from matrix.stage import Stage, make_project
from matrix.table import MODES

#: Log lines of a worker in which something of ours went wrong, or Celery gave up.
ALARMS = (
    "could not make a dead letter", "neither stored nor spooled", "dead letters go to the spool",
    "could not be finished", "could not judge", "dead-letter store refused", "Unrecoverable error",
)  # fmt: skip

#: The directory for the results, one JSON line for each cell; without it, nothing is written.
RESULTS = os.environ.get("CELERY_DLQ_MATRIX_RESULTS", "")


_VERSIONS = {name: version(name) for name in ("celery", "kombu", "billiard")}


@dataclass(frozen=True)
class Played:
    """What a scene has left."""

    modes: tuple[Mode, ...]
    seen: Mapping[str, Seen]
    letters: int
    left_on_queue: int
    #: Directories of the flight recorder that are left when the workers have ended and all was recovered.
    left_in_recorder: int
    alarms: tuple[str, ...]


@dataclass
class Theatre:
    """Makes stages, and remembers what was seen on them."""

    root: Path
    urls: dict[str, str]
    _played: dict[tuple[str, str, str], Played | Exception] = field(default_factory=dict)

    def play(self, scene: str, broker: str, pool: str) -> Played:
        """The end of the scene there. It is played once, even if that fails."""
        key = scene, broker, pool
        if key not in self._played:
            try:
                self._played[key] = self._play(scene, broker, pool)
            except Exception as error:
                self._played[key] = error
        played = self._played[key]
        if isinstance(played, Exception):
            raise played
        return played

    def _play(self, scene: str, broker: str, pool: str) -> Played:
        directory = self.root / f"{scene}-{broker}-{pool}"
        directory.mkdir()
        urls = {**self.urls, "store": f"sqlite:///{directory}/store.sqlite3"}
        options: dict[str, Any] = {"settings": SETTINGS.get(scene, {})}
        if scene == "backend_away":
            options |= {"backend": None, "environ": {"PROJ_BACKEND": "redis://127.0.0.1:1/0"}}
        stage = Stage(make_project(directory, broker, urls, **options), broker, pool)
        modes = tuple(it for it in MODES if it.scene == scene and it.applies_to(broker, pool))
        play = Play(stage, modes)
        try:
            stage.declare_queue()
            SCENES[scene](play)
            return _seen(play)
        finally:
            stage.project.sent.extend(filter(None, (it.task_id for it in play.watched.values())))
            stage.project.close()


def _seen(play: Play) -> Played:
    stage = play.stage
    logs = [worker.log.read_text(errors="replace") for worker in stage.workers]
    # A message that ended without a mark would become a letter now.
    list(stage.project.dlq.recorder.recover())
    return Played(
        modes=tuple(play.modes),
        seen=play.seen(),
        letters=len(stage.letters()),
        left_on_queue=stage.waiting(),
        left_in_recorder=len(list(stage.project.dlq.recorder.look())),
        alarms=tuple(
            line for log in logs for line in log.splitlines() if any(it in line for it in ALARMS)
        ),
    )


def note(mode: Mode, broker: str, pool: str, seen: Seen) -> None:
    """Keep for the page whether ``seen`` is the end that the table says."""
    if not RESULTS:
        return
    right = mode.end_on(broker, pool).holds(seen)
    cell = {"mode": mode.id, "broker": broker, "pool": pool, "right": right, **_VERSIONS}
    with (Path(RESULTS) / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(cell) + "\n")
