"""The store as screens read it: without secrets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from celery_dlq import hiding
from celery_dlq.redact import Redactor
from celery_dlq.store.base import Page, Rows

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: The roles of the store that screens read, each with the function that hides the secrets in its values, and
#: the methods that return such values.
_READ: Mapping[str, tuple[Callable[..., Any], Collection[str]]] = {
    "letters": (hiding.hide_letter, ("get", "find")),
    "groups": (hiding.hide_group, ("get", "find", "triage")),
    "operations": (hiding.hide_operation, ("get", "find")),
    "sendings": (hiding.hide_sending, ("of_letter", "of_cause", "of_operation")),
    "edits": (hiding.hide_change, ("of_letter",)),
    "handlings": (hiding.hide_handling, ("get", "find")),
    "auto_redrives": (hiding.hide_status, ("statuses",)),
    "audit": (hiding.hide_act, ("find",)),
}


def discreet(store: Store, redactor: Redactor) -> Store:
    """``store``, as screens read it. The values that it returns are without secrets, and must not be sent or
    stored."""
    shown = copy(store)
    for name, (hide, methods) in _READ.items():
        role = _Discreet(getattr(store, name), partial(hide, redactor=redactor), methods)
        setattr(shown, name, role)
    return shown


class _Discreet:
    """A role of the store. The values that ``methods`` return are without secrets; all other methods are
    unchanged."""

    def __init__(self, role: Any, hide: Callable[[Any], Any], methods: Collection[str]) -> None:
        self._role, self._hide, self._methods = role, hide, methods

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._role, name)
        if name not in self._methods:
            return method
        return lambda *args, **kwargs: self._hidden(method(*args, **kwargs))

    def _hidden(self, found: Any) -> Any:
        """The value, list or page that was found, without secrets."""
        if found is None:
            return None
        if isinstance(found, list):
            return [self._hide(one) for one in found]
        if isinstance(found, dict):
            return {name: self._hide(one) for name, one in found.items()}
        if isinstance(found, Page):
            return replace(found, letters=tuple(map(self._hide, found.letters)))
        if isinstance(found, Rows):
            return replace(found, rows=tuple(map(self._hide, found.rows)))
        return self._hide(found)
