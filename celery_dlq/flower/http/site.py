"""The state that all pages of one Flower share: addresses, the app's dead-letter queue, and its settings."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.base.redact import Redactor
from celery_dlq.errors import SettingsError
from celery_dlq.flower.http.calls import Calls, Snapshots
from celery_dlq.flower.http.permission import Forms
from celery_dlq.model.route import owner_of
from celery_dlq.redrive.letter.payload import parameters_of
from celery_dlq.settings import Settings
from celery_dlq.store.database.client import Client, Role
from celery_dlq.view import times
from celery_dlq.view.lookup import redacting
from celery_dlq.worker.end.closing import DEAD_STATE

if TYPE_CHECKING:
    from celery_dlq.store import Store

STATIC = Path(__file__).parents[1] / "static"

Pairs = Iterable[tuple[str, str]]


class Links:
    """Addresses with Flower's ``--url_prefix``.

    :param prefix: the option of Flower; may be empty.
    """

    def __init__(self, prefix: str | None) -> None:
        bare = (prefix or "").strip("/")
        self.root: str = f"/{bare}" if bare else ""

    def page(self, *parts: str, query: Pairs = ()) -> str:
        """One of our pages: ``page("letters", task_id)``."""
        return self._made("/dead-letters", parts, query)

    def api(self, *parts: str, query: Pairs = ()) -> str:
        """An address of the REST API."""
        return self._made("/api/dead-letters", parts, query)

    def letters(self, **filters: str) -> str:
        """The list of letters with these filters."""
        return self.page("letters", query=filters.items())

    def letter(self, task_id: str, *parts: str) -> str:
        """The page of a letter, or an act on it."""
        return self.page("letters", task_id, *parts)

    def operation(self, operation_id: str) -> str:
        """The page of an operation."""
        return self.page("operations", operation_id)

    def group(self, fingerprint: str) -> str:
        """The page of a group."""
        return self.page("groups", fingerprint)

    def automation(self, name: str, *parts: str) -> str:
        """The page of an automatic redrive or a handler, or an act on it."""
        return self.page("automations", name, *parts)

    def task(self, task_id: str) -> str:
        """Flower's own page of a task."""
        return f"{self.root}/task/{quote(task_id, safe='')}"

    def static(self, name: str) -> str:
        """A static file; its address changes with its content."""
        return f"{self.root}/dead-letters/static/{name}?v={_version(name)}"

    def _made(self, base: str, parts: tuple[str, ...], query: Pairs) -> str:
        path = "".join(f"/{quote(part, safe='')}" for part in parts)
        values = urlencode(list(query))
        return f"{self.root}{base}{path}" + (f"?{values}" if values else "")


@lru_cache
def _version(name: str) -> str:
    return hashlib.blake2b((STATIC / name).read_bytes(), digest_size=6).hexdigest()


T = TypeVar("T")

#: Seconds for which an aggregate is cached.
FRESH_S = 10.0


class Site:
    """The pages' access to the dead-letter queue of a Flower's app.

    :param flower_app: a ``flower.app.Flower``.
    """

    def __init__(self, flower_app: Any) -> None:
        self._flower_app = flower_app
        self.app: Any = flower_app.capp
        self.options: Any = flower_app.options
        self.links: Links = Links(self.options.url_prefix)
        self.forms: Forms = Forms()
        # Longer than the database's own timeouts, whose errors are more precise.
        self.calls: Calls = Calls(2 * _settings_of(self.app).store_timeout)
        self.snapshots: Snapshots = Snapshots(self.calls)
        self._making = threading.Lock()

    @cached_property
    def settings(self) -> Settings:
        """The settings of the app; the defaults if they are not valid: each page shows why."""
        return _settings_of(self.app)

    @property
    def dead_state(self) -> str:
        """The state of dead-lettered tasks in Flower's list; empty if Flower does not show them."""
        return DEAD_STATE if self.settings.events else ""

    @property
    def sees_several(self) -> bool:
        """Whether it shows letters of several namespaces."""
        names = self.settings.namespaces
        return names is None or len(names) > 1

    @cached_property
    def redactor(self) -> Redactor:
        """Hides secrets. Unlike that of the queue, it does not wait for another thread."""
        return Redactor(self.settings.redact, self.settings.search_redacted_key)

    def owner_of(self, route: str) -> str:
        """The owner of the route with this name, by the settings; empty if it has none."""
        return owner_of(route, self.settings.routes)

    def parameters(self, task: str) -> Sequence[str]:
        """The names of the positional parameters of a task; empty if this Flower does not have its code."""
        return parameters_of(self.app, task) or ()

    def flower_knows(self, task_id: str) -> bool:
        """Whether Flower has a page for a task."""
        return task_id in self._flower_app.events.state.tasks

    async def ask(self, question: Callable[[Store], T]) -> T:
        """The store's answer, with secrets hidden.

        :raises SettingsError: a ``dlq_*`` setting is not valid.
        :raises StoreError: the store does not answer, or not in time.
        """
        return await self.calls.run(lambda: question(self._redacted_store()))

    async def recall(
        self, key: Hashable, question: Callable[[Store], T], fresh_s: float = FRESH_S
    ) -> T:
        """The store's answer; a cached one for the same ``key`` may be up to ``fresh_s`` seconds old."""
        return await self.snapshots.get(key, fresh_s, lambda: question(self._redacted_store()))

    async def consult(
        self,
        question: Callable[[DeadLetterQueue], T],
        key: Hashable = None,
        fresh_s: float = FRESH_S,
    ) -> T:
        """The answer of the queue to a question that changes nothing. With a ``key``, it may be up to
        ``fresh_s`` seconds old.

        :raises CeleryDLQError: it has none, or the store does not answer in time.
        """
        if key is None:
            return await self.calls.run(lambda: question(self.queue()))
        return await self.snapshots.get(key, fresh_s, lambda: question(self.queue()))

    async def act(self, work: Callable[[DeadLetterQueue], T]) -> T:
        """Make a change.

        :raises CeleryDLQError: it is not possible, or the store does not answer in time. In the second case
            the change may still happen.
        """
        try:
            return await self.calls.run(lambda: work(self.queue()))
        finally:
            self.snapshots.forget()

    def _redacted_store(self) -> Store:
        queue = self.queue()
        return redacting(queue.store, queue.redactor)

    def queue(self) -> DeadLetterQueue:
        """The dead-letter queue, with its store opened. Blocks until it is open.

        :raises SettingsError: a ``dlq_*`` setting is not valid.
        :raises StoreError: the database does not answer, or its schema does not fit.
        """
        with self._making:
            queue = DeadLetterQueue.of(self.app)
            queue.client = Client(Role.FLOWER, makes_file=False)
            # One thread opens the store. The pages use its clock.
            times.CLOCK.set_ahead(queue.store.clock_ahead())
            return queue


def _settings_of(app: Any) -> Settings:
    try:
        return Settings.from_app(app)
    except SettingsError:
        return Settings()
