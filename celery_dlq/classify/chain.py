"""The exceptions behind an exception: its causes, the exceptions that it wraps, and the members of
groups."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from celery_dlq.base.redact import clip
from celery_dlq.classify.evidence import arguments, is_a, may_have, read, shown_name
from celery_dlq.classify.guarded import own_values

#: The most exceptions read for one decision, over its whole chain and all groups.
NODE_LIMIT = 1_000
#: The most exceptions searched below one network error.
ROOT_CAUSE_LIMIT = 100

#: Where wrappers keep the exception they wrap: SQLAlchemy ``orig``, urllib3 and urllib ``reason``,
#: aiohttp ``os_error``, google-api-core ``cause``; the others are common in application code.
_WRAPPED = (
    "orig", "reason", "original_exception", "original_error", "inner_exception", "last_exception",
    "base_exception", "cause", "os_error",
)  # fmt: skip

_WRAPPED_NAMES = frozenset(_WRAPPED)
_MEMBER_NAMES = frozenset({"exceptions"})

# The real links of an exception, past its class.
_CAUSE = BaseException.__dict__["__cause__"].__get__
_CONTEXT = BaseException.__dict__["__context__"].__get__
_HIDES_CONTEXT = BaseException.__dict__["__suppress_context__"].__get__

#: How many leading arguments may be exceptions: httpcore keeps the original only there.
_ARGUMENTS = 4

#: How many of its other attributes may be exceptions.
_ATTRIBUTES = 32

_PATH_LIMIT = 500


class Link:
    """An exception, and the exception that led to it."""

    __slots__ = ("exc", "via")

    def __init__(self, exc: BaseException, via: Link | None = None) -> None:
        self.exc: BaseException = exc
        self.via: Link | None = via

    def path(self) -> str:
        """The type names from the raised exception to this one, as ``Outer <- inner.Error``."""
        if self.via is None:
            return shown_name(type(self.exc))[:_PATH_LIMIT]
        names, link = [], self
        while link.via is not None:
            names.append(shown_name(type(link.exc)))
            link = link.via
        names.append(shown_name(type(link.exc)))
        return clip(" <- ".join(reversed(names)), _PATH_LIMIT)


class Budget:
    """How many exceptions one decision may still read."""

    def __init__(self, left: int = NODE_LIMIT) -> None:
        self.left: int = left

    def spend(self) -> bool:
        """Take one; False when none is left."""
        self.left -= 1
        return self.left >= 0


def walk(
    start: Link, follow: Callable[[BaseException], list[BaseException]], budget: Budget
) -> Iterator[Link]:
    """``start`` and the exceptions that ``follow`` leads to, nearest first, each once.

    The objects are kept during the walk, because a property may make a new exception at each reading,
    and Python reuses the id of a collected object.
    """
    seen = {id(start.exc): start.exc}
    waiting = deque([start])
    while waiting and budget.spend():
        link = waiting.popleft()
        yield link
        for exc in follow(link.exc):
            if id(exc) not in seen and len(seen) < NODE_LIMIT:
                seen[id(exc)] = exc
                waiting.append(Link(exc, link))


def linked(start: Link) -> Iterator[Link]:
    """``start`` and all exceptions linked to it, nearest first; at most :data:`ROOT_CAUSE_LIMIT`."""
    return walk(start, reachable, Budget(ROOT_CAUSE_LIMIT))


def causes(exc: BaseException) -> list[BaseException]:
    """The exceptions behind an undecided one: its cause and the exceptions that it wraps, or its
    context.

    The context counts only if there is no explicit cause and ``from None`` did not hide it.
    """
    explicit = wrapped(exc)
    if explicit or _HIDES_CONTEXT(exc):
        return explicit
    return _exceptions(_CONTEXT(exc))


def reachable(exc: BaseException) -> list[BaseException]:
    """All exceptions linked to ``exc``: causes, contexts (even hidden ones), and members of a group."""
    return [*wrapped(exc), *_exceptions(_CONTEXT(exc)), *members(exc)]


def members(exc: BaseException) -> tuple[BaseException, ...]:
    """The exceptions of a group; empty if ``exc`` is not a genuine exception group."""
    inner = read(exc, "exceptions") if may_have(exc, _MEMBER_NAMES) else None
    if type(inner) is not tuple or len(inner) > NODE_LIMIT:
        return ()
    return inner if all(_is_exception(item) for item in inner) else ()


def wrapped(exc: BaseException) -> list[BaseException]:
    """The exceptions that ``exc`` was raised from, or that it holds."""
    found = _exceptions(_CAUSE(exc))
    if may_have(exc, _WRAPPED_NAMES):
        found += _exceptions(*[read(exc, name) for name in _WRAPPED])
    found += _exceptions(*arguments(exc)[:_ARGUMENTS])
    return found or _exceptions(*own_values(exc, _ATTRIBUTES).values())


def _exceptions(*values: object) -> list[BaseException]:
    return [value for value in values if _is_exception(value)]  # type: ignore[misc]


def _is_exception(value: object) -> bool:
    return is_a(value, BaseException)
