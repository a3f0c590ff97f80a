"""The whole table: every way to die, each with the end that it must come to."""

from __future__ import annotations

from matrix.bodies import BODIES
from matrix.messages import MESSAGES
from matrix.mode import Mode
from matrix.workers import WORKERS

#: The chapters of the page, each with its rows.
CHAPTERS: dict[str, tuple[Mode, ...]] = {
    "What happens in and around a task's body": BODIES,
    "What is wrong with a message, or is done to it": MESSAGES,
    "What happens to a worker, its connections and its backend": WORKERS,
}

MODES: tuple[Mode, ...] = tuple(mode for modes in CHAPTERS.values() for mode in modes)
