"""Exceptions that claim to be those of a library, for what the real ones cannot be made to carry."""

from types import SimpleNamespace


def pretend(name, *args, **attributes):
    """An exception whose type claims to be the one called ``name``, and derives from nothing."""
    module, _, short = name.rpartition(".")
    exc = type(short, (Exception,), {"__module__": module})(*args)
    exc.__dict__.update(attributes)
    return exc


def answer(status, **headers):
    """A response with that status; ``retry_after`` becomes ``retry-after``."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return SimpleNamespace(status_code=status, headers=named)
