"""What all pages of one Flower share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from celery_dlq.errors import SettingsError
from celery_dlq.flower.calls import Calls, Snapshots
from celery_dlq.flower.forms import Forms
from celery_dlq.flower.links import Links
from celery_dlq.queue import DeadLetterQueue
from celery_dlq.settings import Settings

if TYPE_CHECKING:
    from celery_dlq.store.base import Store

T = TypeVar("T")

#: Seconds for which an aggregate is shown as it is.
FRESH_S = 10.0


class Site:
    """The dead-letter queue of a Flower's app, as the pages reach it.

    :param flower_app: a ``flower.app.Flower``.
    """

    def __init__(self, flower_app: Any) -> None:
        self._flower_app = flower_app
        self.app, self.options = flower_app.capp, flower_app.options
        self.links = Links(self.options.url_prefix)
        self.forms = Forms()
        # Later than the database's own timeouts, whose errors say more.
        self.calls = Calls(2 * _store_timeout(self.app))
        self.snapshots = Snapshots(self.calls)
        self._making = threading.Lock()

    @cached_property
    def dead_state(self) -> str:
        """The state under which Flower lists dead letters among tasks; empty when it does not."""
        try:
            settings = Settings.from_app(self.app)
        except SettingsError:
            return ""
        return (settings.events and settings.event_state) or ""

    def flower_knows(self, task_id: str) -> bool:
        """Whether Flower has a page for a task."""
        return task_id in self._flower_app.events.state.tasks

    async def ask(self, question: Callable[[Store], T]) -> T:
        """What the store answers.

        :raises SettingsError: a ``dlq_*`` setting is not valid.
        :raises StoreError: it does not answer, or not in time.
        """
        return await self.calls.run(lambda: question(self.queue().store))

    async def act(self, work: Callable[[DeadLetterQueue], T]) -> T:
        """Change something.

        :raises CeleryDLQError: it cannot be done, or the store does not answer in time. In that case it
            may be done yet.
        """
        try:
            return await self.calls.run(lambda: work(self.queue()))
        finally:
            self.snapshots.forget()

    async def recall(
        self, key: Hashable, question: Callable[[Store], T], fresh_s: float = FRESH_S
    ) -> T:
        """What the store answers, or answered at most ``fresh_s`` seconds ago to the same ``key``."""
        return await self.snapshots.get(key, fresh_s, lambda: question(self.queue().store))

    def queue(self) -> DeadLetterQueue:
        """The dead-letter queue, its store made. Blocks while it is made.

        :raises SettingsError: a ``dlq_*`` setting is not valid.
        :raises StoreError: the database does not answer, or its schema does not fit.
        """
        with self._making:
            queue = DeadLetterQueue.of(self.app)
            queue.store  # noqa: B018 - one thread makes it
            return queue


def _store_timeout(app: Any) -> float:
    try:
        return Settings.from_app(app).store_timeout
    except SettingsError:
        # Each page says so.
        return Settings().store_timeout
