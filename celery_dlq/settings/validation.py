"""Reads values into a class of settings, and describes the problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from celery_dlq.errors import page
from celery_dlq.known import near_names
from celery_dlq.settings.allowed import Allowed

#: Overrides ``dlq_store_url``, as ``CELERY_BROKER_URL`` overrides ``broker_url``.
STORE_URL_VARIABLE = "CELERY_DLQ_STORE_URL"

#: Overrides ``dlq_store_read_url``.
READ_URL_VARIABLE = "CELERY_DLQ_STORE_READ_URL"

#: The settings that variables of the environment override.
_FROM_VARIABLES = {"store_url": STORE_URL_VARIABLE, "store_read_url": READ_URL_VARIABLE}

#: The settings whose values are not shown.
_SECRET = frozenset({"store_url", "store_read_url", "search_redacted_key"})

PREFIX = "dlq_"
_DOCS = page("settings")

#: How similar a variable's name must be to ours to count as misspelt. Other variables with our prefix belong
#: to the user, whose configuration may read them.
_ALIKE = 0.8

T = TypeVar("T")


def allowed_values(definition: type[Any]) -> dict[str, Allowed]:
    """The allowed values by the name of each setting."""
    return {item.name: item.metadata["allowed"] for item in fields(definition)}


def given_settings(conf: Any) -> dict[str, str]:
    """The settings that ``conf`` contains: name without prefix to the key as the user wrote it. Under a
    namespace (Django: ``CELERY_DLQ_…``) Celery leaves the keys as they are and translates look-ups."""
    keys = [str(key) for key in conf]  # loads a configuration that is still pending, and its prefix
    namespace = str(getattr(conf, "prefix", None) or "").lower()
    found = {}
    for key in keys:
        name = key.lower().removeprefix(namespace)
        if name.startswith(PREFIX):
            found[name.removeprefix(PREFIX)] = key
    return found


def read_values(
    definition: type[T], values: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[T, tuple[str, ...]]:
    """The settings, with the default in place of each invalid value; and the problems."""
    chosen = dict(values)
    problems = _misspelt_variables(environ)
    for name, variable in _FROM_VARIABLES.items():
        if environ.get(variable):
            chosen[name] = environ[variable]
    for name, allowed in allowed_values(definition).items():
        problem = name in chosen and problem_of(name, chosen[name], allowed)
        if problem:
            problems.append(problem)
            del chosen[name]
    settings: Any = definition(**chosen)
    base, cap = settings.retry_base, settings.retry_cap
    if base > cap:
        problems.append(
            f"dlq_retry_base ({base:g} s) is above dlq_retry_cap ({cap:g} s); raise dlq_retry_cap or lower "
            f"dlq_retry_base. See {_DOCS}."
        )
        chosen = {name: chosen[name] for name in chosen.keys() - {"retry_base", "retry_cap"}}
        settings = definition(**chosen)
    return settings, tuple(problems)


def problem_of(name: str, value: Any, allowed: Allowed) -> str:
    """Why ``name`` cannot have ``value``; empty if it can."""
    try:
        accepted = allowed.accepts(value)
    except Exception as error:  # noqa: BLE001 - a value of the user may raise anything
        return f"{PREFIX}{name} cannot be read: {error}. See {_DOCS}."
    if accepted:
        return ""
    shown = "********" if name in _SECRET else repr(value)
    return f"{PREFIX}{name} = {shown} is not {allowed.words}. See {_DOCS}."


def unknown_setting(name: str, key: str, names: Iterable[str]) -> str:
    """The error for ``key``, which the user wrote, and which is not a setting."""
    near = near_names(name, names)
    if not near:
        return f"Unknown setting {key!r}: it is not a setting of celery_dlq. See {_DOCS}."
    meant = near[0].upper() if key.isupper() else near[0]
    beginning = key[: len(key) - len(name)]
    return f"Unknown setting {key!r}: did you mean {beginning + meant!r}? See {_DOCS}."


def _misspelt_variables(environ: Mapping[str, str]) -> list[str]:
    """The error for a variable whose name is similar to that of the store's URL. No code would read it, and
    letters would go to the default store."""
    if STORE_URL_VARIABLE in environ:
        return []
    prefix, _, rest = STORE_URL_VARIABLE.partition("STORE")
    ours = [key for key in environ if key.upper().startswith(prefix)]
    endings = {key.upper().removeprefix(prefix): key for key in sorted(ours)}
    return [
        f"The environment variable {endings[near]} is not read: did you mean {STORE_URL_VARIABLE}? "
        f"See {_DOCS}."
        for near in near_names("STORE" + rest, endings, alike=_ALIKE)[:1]
    ]
