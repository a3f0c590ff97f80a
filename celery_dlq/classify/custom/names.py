"""Imports an exception class by its dotted name. This is done only when an operator names a class, never to
judge a failure."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from types import ModuleType

from celery_dlq.classify.custom.custom import ALL_BELOW, Rule
from celery_dlq.errors import CeleryDLQError


def find_class(dotted: str) -> type[BaseException]:
    """The exception class of this name; a name without a dot is a builtin. Imports its module.

    :raises CeleryDLQError: the name cannot be imported, or is not an exception class.
    """
    parts = (dotted if "." in dotted else f"builtins.{dotted}").split(".")
    found: object = None
    for end in range(len(parts) - 1, 0, -1) if all(parts) else ():
        module = _import(".".join(parts[:end]))
        if module is not None:
            found = _reach(module, parts[end:])
            break
    if isinstance(found, type) and issubclass(found, BaseException):
        return found
    raise CeleryDLQError(
        f"{dotted!r} is not an exception class that can be imported here; "
        "give its dotted name as in a traceback, such as requests.exceptions.Timeout."
    )


def misnamed(rules: Iterable[Rule]) -> Iterator[str]:
    """The problems of names in ``rules`` that can never match. It imports the named modules, which judging
    never does.

    Classes made at run time cannot be imported by name; name their module, as in ``"module.*"``.
    """
    for rule in rules:
        for spec in rule.exceptions:
            problem = _problem(spec) if isinstance(spec, str) else ""
            if problem:
                # Rules of the short forms already have the name of the setting.
                short = rule.name.startswith(("dlq_", "task."))
                yield f"{rule.name if short else f'dlq_rules, {rule.name}'}: {problem}"


def _problem(spec: str) -> str:
    try:
        _check(spec)
    except CeleryDLQError as error:
        return str(error)
    return ""


def _check(spec: str) -> None:
    if not spec.endswith(ALL_BELOW):
        find_class(spec)
    elif _import(spec.removesuffix(ALL_BELOW)) is None:
        raise CeleryDLQError(f"{spec!r} does not name an installed module; correct the name.")


def _import(name: str) -> ModuleType | None:
    """The module; None if there is no module with this name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            return None
        raise CeleryDLQError(
            f"Importing {name} failed: {error}. Install the missing package."
        ) from error
    except Exception as error:
        raise CeleryDLQError(
            f"Importing {name} failed: {type(error).__name__}: {error}. "
            "Import it in a Python shell to see why."
        ) from error


def _reach(module: ModuleType, names: list[str]) -> object:
    found: object = module
    for name in names:
        found = getattr(found, name, None)
    return found
