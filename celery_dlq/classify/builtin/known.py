"""The whole built-in table, and the probes for types that it does not list."""

from __future__ import annotations

import sys
from itertools import chain
from typing import Any, cast

from celery_dlq.classify.builtin.codes import words
from celery_dlq.classify.builtin.http import http_status, in_turn
from celery_dlq.classify.builtin.postgres import sqlstate_of
from celery_dlq.classify.builtin.table_files import DOMAINS, rows_of
from celery_dlq.classify.chain import wrapped
from celery_dlq.classify.evidence import (
    FLAGS,
    STATUS_SOURCES,
    bases,
    dotted_name,
    flag,
    mapping_item,
    may_have,
    read,
    status,
    text_of,
)
from celery_dlq.classify.guarded import is_default, know
from celery_dlq.classify.table import Finding, Match, Row, Table
from celery_dlq.model.states import Verdict


def unpickleable(exc: BaseException) -> Finding | None:
    """Celery's substitute for an exception that cannot be pickled: its class and its arguments
    decide."""
    module, name = text_of(read(exc, "exc_module")), text_of(read(exc, "exc_cls_name"))
    cls = _loaded(module or "", name or "")
    bare = _bare(cls or _named(module, name), read(exc, "exc_args"))
    for match in _matches(cls, f"{module}.{name}"):
        probe = match.row.probe
        finding = (probe(bare) if probe is not None else None) or match.finding
        if finding is not None:
            return finding._replace(evidence=f"{finding.evidence}, which cannot be pickled")
    return None


def _loaded(module: str, name: str) -> type[BaseException] | None:
    """The exception class with this name, if it is already loaded; nothing is imported."""
    cls = mapping_item(read(sys.modules.get(module), "__dict__"), name)
    if issubclass(type(cls), type) and BaseException in bases(cast(type, cls)):
        return cast("type[BaseException]", cls)
    return None


def _named(module: str | None, name: str | None) -> type[BaseException]:
    return type(name or "?", (Exception,), {"__module__": module or "?"})


def _bare(cls: type[BaseException], args: object) -> BaseException:
    """An instance with these arguments, and none of the exception's other attributes."""
    # Not through the class's own __new__ and __init__.
    maker: Any = next(base for base in bases(cls) if dotted_name(base).startswith("builtins."))
    try:
        bare: BaseException = maker.__new__(cls, *(args if type(args) is tuple else ()))
    except Exception:  # noqa: BLE001 - a group without members
        return Exception()
    return bare


def _matches(cls: type | None, name: str) -> tuple[Match, ...]:
    """The rows for the class with this name. The bases count if the class is loaded."""
    return TABLE.look_up(cls).matches if cls is not None else TABLE.matches([name])


_STAND_IN = Row(
    "celery.unpickleable",
    ("celery.utils.serialization.UnpickleableExceptionWrapper",),
    probe=unpickleable,
    depends_on="the type that it stands for",
)

#: The rows of each domain.
ROWS = {domain: rows_of(domain) for domain in DOMAINS}

TABLE = Table((_STAND_IN, *chain.from_iterable(ROWS.values())))

# Their properties are trusted to return.
know(TABLE.packages())


def declared(exc: BaseException) -> Finding | None:
    """Finds a flag that says that the exception is worth another attempt."""
    found = flag(exc)
    if found is None or not found[0]:
        return None
    return Finding(Verdict.TRANSIENT, "flag.retryable", f"{found[1]}=True")


def denied(exc: BaseException) -> Finding | None:
    """Finds a flag of this instance that says that the exception is not worth another attempt.

    True is always set on purpose, but False is the default of many base classes.
    """
    found = flag(exc)
    if found is None or found[0] or is_default(exc, found[1]):
        return None
    return Finding(Verdict.TERMINAL, "flag.retryable", f"{found[1]}=False")


# "code" and "status" mean many things; they are read only where nothing else decides (``general.py``).
_SOURCES = tuple(source for source in STATUS_SOURCES if source not in {("status",), ("code",)})

_status = http_status(*_SOURCES)


def answered(exc: BaseException) -> Finding | None:
    """Finds an HTTP status. A refusal that the class has for all its instances is a default, and a 500 on
    top of another exception says less than that one."""
    finding = _status(exc)
    if finding is None or finding.verdict is Verdict.TRANSIENT:
        return finding
    found = status(exc, _SOURCES)
    if found is None:
        return finding
    code, source = found
    return None if is_default(exc, source) or (code == 500 and wrapped(exc)) else finding


# An SQLSTATE comes first, because nothing else looks like one.
_generic = in_turn(sqlstate_of, declared, answered, denied)
# The attributes that it reads.
_CARRIED = frozenset({"sqlstate", "pgcode", *FLAGS, *(source[0] for source in _SOURCES)})


def carried(exc: BaseException) -> Finding | None:
    """Asked about types that no row knows: an SQLSTATE, a flag, an HTTP status."""
    return _generic(exc) if may_have(exc, _CARRIED) else None


#: Rules whose terminal verdict holds although a network error was raised on top of it.
ROOT_CAUSES = words("rules.root_causes")
