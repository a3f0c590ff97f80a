"""Synthetic exceptions, made from a text so that the rules can judge it.

A synthetic exception has the name of the type, the message, and the attributes that the evidence of a
decision mentions. If the class is loaded, it is the base. Nothing is imported, because a text must not choose
what is imported.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from celery_dlq.classify.custom.custom import loaded
from celery_dlq.classify.evidence import bases
from celery_dlq.classify.replay.traceback_parser import Written

_ERRNO = re.compile(r"\[Errno (\d{1,5})\]")

#: The evidence that rules record, such as ``status=503 from response.status_code``.
_NOTED = re.compile(
    r"\b(?:status|sqlstate|errno)=(\w{1,9}) from ([a-z_]+(?:\.[a-z_]+){0,2})(?![\w.\[])"
)

#: ``Py_TPFLAGS_HEAPTYPE``: the class was made at run time, not by the interpreter.
_MADE_AT_RUN_TIME = 1 << 9


def stand_in(written: Written, noted: Mapping[str, str]) -> BaseException:
    """An exception with the name, message, causes and members in the text.

    :param noted: evidence that a rule recorded from real exceptions, by the names of their types.
    """
    inner = tuple(stand_in(member, noted) for member in written.members)
    exc = _make(written, inner, noted.get(written.type_name, ""))
    if written.before is not None:
        before = stand_in(written.before, noted)
        exc.__context__ = before
        if written.is_cause:
            exc.__cause__ = before
    return exc


def loaded_class(type_name: str) -> type[BaseException] | None:
    """The exception class with this dotted name, if its module is loaded."""
    found = loaded(type_name if "." in type_name else f"builtins.{type_name}")
    if isinstance(found, type) and issubclass(found, BaseException):
        return found
    return None


def _make(written: Written, members: tuple[BaseException, ...], evidence: str) -> BaseException:
    base = loaded_class(written.type_name) or Exception
    try:
        return _instance(_subclass(base, written, members, evidence), written, members)
    except Exception:  # noqa: BLE001 - a foreign class may refuse to be derived from
        return _instance(_subclass(Exception, written, members, evidence), written, members)


def _subclass(
    base: type[BaseException], written: Written, members: tuple[BaseException, ...], evidence: str
) -> type[BaseException]:
    module, _, name = written.type_name.rpartition(".")
    attributes: dict[str, Any] = {
        "__module__": module or "builtins",
        "__qualname__": name,
        "__str__": lambda _self: written.message,
        **_noted(written, evidence),
    }
    if members:
        attributes["exceptions"] = members
    return cast("type[BaseException]", type(name, (base,), attributes))


def _noted(written: Written, evidence: str) -> dict[str, Any]:
    """The attributes that recorded evidence and the message mention."""
    attributes: dict[str, Any] = {}
    for value, source in _NOTED.findall(evidence):
        name, *inner = source.split(".")
        found: Any = int(value) if value.isdigit() and "sqlstate" not in source else value
        for part in reversed(inner):
            found = SimpleNamespace(**{part: found})
        attributes[name] = found
    errno = _ERRNO.match(written.message)
    return {**({"errno": int(errno[1])} if errno else {}), **attributes}


def _instance(
    cls: type[BaseException], written: Written, members: tuple[BaseException, ...]
) -> BaseException:
    # Not through the class's own __new__ and __init__, whose arguments are unknown.
    maker = next(base for base in bases(cls) if not base.__flags__ & _MADE_AT_RUN_TIME)
    make: Any = maker.__new__
    is_group = maker is getattr(builtins, "BaseExceptionGroup", None)
    arguments = (written.message, list(members)) if is_group else (written.message,)
    exc: BaseException = make(cls, *arguments)
    return exc
