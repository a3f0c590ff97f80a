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

#: Ends that are not settled yet, by scene or mode, and pool. They are not played, and the page says so.
UNSETTLED = frozenset(
    {
        # Celery's cold shutdown runs in gevent's hub, where nothing can wait for a record.
        ("cold_shutdown", "gevent"),
        ("soft_shutdown", "gevent"),
    }
)


def is_played(mode: Mode, broker: str, pool: str) -> bool:
    """Whether a run of the matrix plays ``mode`` there."""
    settled = UNSETTLED.isdisjoint({(mode.scene, pool), (mode.id, pool)})
    return settled and mode.applies_to(broker, pool)
