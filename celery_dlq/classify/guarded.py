"""Runs foreign code: guarded, and for a limited time.

Reading an attribute may run any code: a property that raises, sleeps, or never ends. A thread cannot be
stopped from outside, so code of unknown origin runs in a thread of its own, which is left behind if it takes
too long. C, the standard library and the libraries of the built-in table are of known origin, and run
directly. The origin of a class is looked up once, so this costs next to nothing.

This cannot guard against C code that keeps the interpreter's lock. It does not help in a pool of greenlets
either, where a loop without a switch blocks everything anyway.
"""

from __future__ import annotations

import contextvars
import ctypes
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import ref

T = TypeVar("T")

#: Time limit for one call of foreign code, in seconds.
PATIENCE_S = 0.25
#: Time limit for all foreign code of one decision, in seconds.
DECISION_S = 1.0

# The real attributes of a class, past any metaclass that defines its own.
_MODULE = type.__dict__["__module__"].__get__
_MRO = type.__dict__["__mro__"].__get__
_MEMBERS = type.__dict__["__dict__"].__get__
_FLAGS = type.__dict__["__flags__"].__get__
# The real attributes of an exception, past its class. An exception may have no dictionary.
_OWN = BaseException.__dict__["__dict__"].__get__

# Py_TPFLAGS_HEAPTYPE: made by a class statement; static types are written in C.
_HEAP_TYPE = 1 << 9

# Reading these runs only code of the interpreter.
_HARMLESS = frozenset(
    {
        BuiltinFunctionType, ClassMethodDescriptorType, FunctionType, GetSetDescriptorType,
        MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType, classmethod, staticmethod,
    }
)  # fmt: skip

_known_packages = {"celery_dlq", *sys.stdlib_module_names}


class Memory(Generic[T]):
    """Facts about classes, for as long as the classes live.

    The key is the identity, because a metaclass may define a ``__hash__`` that raises or hangs; a reused id
    is noticed. The classes are held weakly, because libraries make exception classes at run time.
    """

    def __init__(self, find: Callable[[type], T]) -> None:
        self._find = find
        self._found: dict[int, tuple[ref[type], T]] = {}

    def __call__(self, cls: type) -> T:
        found = self._found.get(id(cls))
        if found is not None and found[0]() is cls:
            return found[1]
        return self._add(cls)

    def _add(self, cls: type) -> T:
        key, found = id(cls), self._find(cls)
        self._found[key] = (ref(cls, lambda _: self._found.pop(key, None)), found)
        return found

    def clear(self) -> None:
        """Forget everything."""
        self._found.clear()


class Shape(NamedTuple):
    """The attributes of a class, and which of them run code of unknown origin."""

    #: Names that its classes define, without the names that the interpreter defines.
    names: frozenset[str]
    #: The names among them that a class of unknown origin defines.
    foreign: frozenset[str]
    #: The names among them that run code when they are read.
    running: frozenset[str]
    #: Whether it computes attributes: ``__getattr__`` or ``__getattribute__``.
    answers_all: bool
    #: Whether one of these methods is of unknown origin.
    runs_all: bool
    #: Whether all its classes are of known origin.
    known: bool


def know(packages: Iterable[str]) -> None:
    """Count these top-level packages as of known origin."""
    _known_packages.update(packages)
    shape_of.clear()


def _shape(cls: type) -> Shape:
    owners: dict[str, tuple[bool, object]] = {}
    for base in reversed(_MRO(cls)):
        known = is_known(base)
        owners.update({name: (known, value) for name, value in _MEMBERS(base).items()})
    foreign = {name for name, (known, _) in owners.items() if not known}
    makers = [name for name in ("__getattr__", "__getattribute__") if _is_written(owners, name)]
    return Shape(
        names=frozenset(name for name in owners if not name.startswith("__")),
        foreign=frozenset(foreign),
        running=frozenset(name for name in foreign if _runs(owners[name][1])),
        answers_all=bool(makers),
        # Reading an attribute of a class runs the descriptors of that class.
        runs_all=issubclass(cls, type) or any(name in foreign for name in makers),
        known=all(map(is_known, _MRO(cls))),
    )


def is_known(cls: type) -> bool:
    """Whether a class is written in C, or belongs to a package of known origin."""
    if not _FLAGS(cls) & _HEAP_TYPE:
        return True
    module = _MODULE(cls)
    return type(module) is str and module.partition(".")[0] in _known_packages


def _is_written(owners: dict[str, tuple[bool, object]], name: str) -> bool:
    return name in owners and type(owners[name][1]) is not WrapperDescriptorType


def _runs(value: object) -> bool:
    kind = type(value)
    return kind not in _HARMLESS and any("__get__" in _MEMBERS(base) for base in _MRO(kind))


shape_of: Memory[Shape] = Memory(_shape)


def may_have(exc: BaseException, names: frozenset[str]) -> bool:
    """Whether ``exc`` may have one of these attributes. Fast, and runs no foreign code."""
    shape = shape_of(type(exc))
    if shape.answers_all or not names.isdisjoint(shape.names):
        return True
    own = _OWN(exc)
    return bool(own) and not names.isdisjoint(own)


def own_values(exc: BaseException, limit: int) -> dict[str, object]:
    """The attributes that the instance itself has, at most ``limit``. Runs no foreign code."""
    own = _OWN(exc)
    if not own:
        return {}
    # A copy, because another thread may add to it. A text of another type may have a hash that raises.
    found = islice(own.copy().items(), limit)
    return {name: value for name, value in found if type(name) is str}


def class_value(cls: type, name: str) -> object:
    """The attribute as the classes of an object define it: a function, a property, a default."""
    return next((_MEMBERS(base)[name] for base in _MRO(cls) if name in _MEMBERS(base)), None)


def is_default(exc: BaseException, name: str) -> bool:
    """Whether the value of an attribute stands in the class, and the instance has none of its own."""
    value = class_value(type(exc), name)
    is_plain = value is not None and not any(
        "__get__" in _MEMBERS(base) for base in _MRO(type(value))
    )
    return is_plain and name not in (_OWN(exc) or ())


def read(source: Any, *names: str) -> Any:
    """The value at the end of a path of attributes; None if it is missing or cannot be read."""
    for name in names:
        shape = shape_of(type(source))
        if shape.runs_all or name in shape.running:
            source = bounded(partial(_get, source, name), source, name)
        else:
            source = _get(source, name)
        if source is None:
            return None
    return source


def call(source: object, name: str) -> Any:
    """The result of a method without arguments; None if the method is missing or fails."""
    method = read(source, name)
    if method is None or not callable(method):
        return None
    shape = shape_of(type(source))
    if name in shape.names and name not in shape.foreign and not shape.runs_all:
        return _guarded(method)
    return bounded(method, source, name)


def _get(source: object, name: str) -> Any:
    try:
        return getattr(source, name, None)
    except BaseException:  # noqa: BLE001 - a property may raise anything, SystemExit included
        return None


def _guarded(work: Callable[[], T]) -> T | None:
    try:
        return work()
    except BaseException:  # noqa: BLE001 - foreign code may raise anything, SystemExit included
        return None


class _Patience(threading.local):
    left = DECISION_S
    is_helper = False


_patience = _Patience()

# Calls that have not returned yet, by class and name. The thread keeps its object, and so the class,
# alive.
_stuck: dict[tuple[int, str], threading.Thread] = {}


def begin() -> None:
    """Begin a new decision in this thread."""
    _patience.left = DECISION_S


def bounded(work: Callable[[], T], source: object, name: str) -> T | None:
    """The result of ``work``; None if it raises or takes too long.

    :param source: the object that the code belongs to; ``name`` says which part of it. While that part is
        stuck, it is not started again, so that a storm of failures leaves one thread behind, not many.
    """
    if _patience.is_helper:
        return _guarded(work)
    key = (id(type(source)), name)
    stuck = _stuck.get(key)
    if _patience.left <= 0 or (stuck is not None and stuck.is_alive()):
        return None
    _stuck.pop(key, None)
    return _in_a_thread(work, source, key)


def _in_a_thread(work: Callable[[], T], source: object, key: tuple[int, str]) -> T | None:
    results: list[T | None] = []
    context = contextvars.copy_context()

    def run(_keeps_alive: object = source) -> None:
        _patience.is_helper = True
        results.append(context.run(_guarded, work))

    thread = threading.Thread(target=run, name="celery-dlq-probe", daemon=True)
    allowed = min(PATIENCE_S, _patience.left)
    try:
        thread.start()
    except RuntimeError:  # no thread can start, or the interpreter is shutting down
        return None
    thread.join(allowed)
    if thread.is_alive():
        _patience.left -= allowed
        _stuck[key] = thread
        _interrupt(thread)
    return results[0] if results else None


def _interrupt(thread: threading.Thread) -> None:
    """Ask a thread to end. A loop in Python does so at once, a sleep in C when it ends."""
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    raise_in(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
