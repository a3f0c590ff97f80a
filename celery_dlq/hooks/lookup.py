"""Finds the callable that a setting names."""

from __future__ import annotations

import inspect
import pkgutil
from typing import Any

from celery_dlq.errors import SettingsError
from celery_dlq.hooks.event import Hook
from celery_dlq.redact import safe_message


def find_hook(given: Any) -> Hook:
    """``given`` itself, or the hook that it names: a dotted name is imported.

    :raises SettingsError: ``given`` cannot be imported, or cannot be a hook.
    """
    found = _imported(given) if isinstance(given, str) else given
    named = repr(given) if isinstance(given, str) else shown(given)
    if isinstance(found, type):
        raise SettingsError(f"{named} is a class; give an instance of it.")
    if not callable(found):
        raise SettingsError(f"{named} cannot be called; give a function.")
    if inspect.iscoroutinefunction(found):
        raise SettingsError(
            f"{named} is a coroutine function, which would not run; write it with def."
        )
    hook: Hook = found
    return hook


def problem_of(given: Any) -> str:
    """Why ``given`` cannot be a hook; empty if it can."""
    try:
        find_hook(given)
    except SettingsError as error:
        return str(error)
    return ""


def shown(hook: object) -> str:
    """The name of ``hook``, for people."""
    name = getattr(hook, "__qualname__", None)
    module = getattr(hook, "__module__", None)
    if isinstance(name, str) and isinstance(module, str):
        return f"{module}.{name}"
    # The text of an object may contain a password.
    return f"{type(hook).__module__}.{type(hook).__qualname__}"


def _imported(name: str) -> Any:
    try:
        return pkgutil.resolve_name(name)
    except Exception as error:
        raise SettingsError(
            f"{name!r} cannot be imported: {type(error).__name__}: {safe_message(error)}; "
            "give a dotted name such as shop.alerts.page."
        ) from error
