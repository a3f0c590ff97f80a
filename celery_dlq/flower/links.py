"""Addresses of our pages and of Flower's."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, urlencode

STATIC = Path(__file__).parent / "static"

Pairs = Iterable[tuple[str, str]]


class Links:
    """Addresses behind Flower's ``--url_prefix``.

    :param prefix: as Flower was given it; may be empty.
    """

    def __init__(self, prefix: str | None) -> None:
        bare = (prefix or "").strip("/")
        self.root = f"/{bare}" if bare else ""

    def page(self, *parts: str, query: Pairs = ()) -> str:
        """A page of ours: ``page("letters", task_id)``."""
        return self._made("/dead-letters", parts, query)

    def api(self, *parts: str, query: Pairs = ()) -> str:
        """Something of our REST interface."""
        return self._made("/api/dead-letters", parts, query)

    def letters(self, **filters: str) -> str:
        """The letters that some filters find."""
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

    def task(self, task_id: str) -> str:
        """Flower's own page of a task."""
        return f"{self.root}/task/{quote(task_id, safe='')}"

    def static(self, name: str) -> str:
        """A file of ours, under an address that changes with its contents."""
        return f"{self.root}/dead-letters/static/{name}?v={_version(name)}"

    def _made(self, base: str, parts: tuple[str, ...], query: Pairs) -> str:
        path = "".join(f"/{quote(part, safe='')}" for part in parts)
        asked = urlencode(list(query))
        return f"{self.root}{base}{path}" + (f"?{asked}" if asked else "")


@lru_cache
def _version(name: str) -> str:
    return hashlib.blake2b((STATIC / name).read_bytes(), digest_size=6).hexdigest()
