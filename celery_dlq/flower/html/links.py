"""The addresses of our pages and of Flower's."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, urlencode

STATIC = Path(__file__).parents[1] / "static"

Pairs = Iterable[tuple[str, str]]


class Links:
    """Addresses with Flower's ``--url_prefix``.

    :param prefix: the option of Flower; may be empty.
    """

    def __init__(self, prefix: str | None) -> None:
        bare = (prefix or "").strip("/")
        self.root = f"/{bare}" if bare else ""

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

    def auto_redrive(self, name: str, *parts: str) -> str:
        """The page of an automatic redrive, or an act on it."""
        return self.page("auto-redrives", name, *parts)

    def auto_run(self, run_id: str) -> str:
        """The page of a run of an automatic redrive."""
        return self.page("auto-redrive-runs", run_id)

    def task(self, task_id: str) -> str:
        """Flower's own page of a task."""
        return f"{self.root}/task/{quote(task_id, safe='')}"

    def static(self, name: str) -> str:
        """A static file; its address changes with its content."""
        return f"{self.root}/dead-letters/static/{name}?v={_version(name)}"

    def _made(self, base: str, parts: tuple[str, ...], query: Pairs) -> str:
        path = "".join(f"/{quote(part, safe='')}" for part in parts)
        asked = urlencode(list(query))
        return f"{self.root}{base}{path}" + (f"?{asked}" if asked else "")


@lru_cache
def _version(name: str) -> str:
    return hashlib.blake2b((STATIC / name).read_bytes(), digest_size=6).hexdigest()
