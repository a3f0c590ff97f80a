"""The exceptions behind an exception: its causes, what it wraps, and the members of groups."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from celery_dlq.classify.evidence import arguments, read, shown_name
from celery_dlq.redact import clip

#: Exceptions looked at for one decision, over its whole chain and all groups.
NODE_LIMIT = 1_000
#: Exceptions searched below one network error.
ROOT_CAUSE_LIMIT = 100

#: Where wrappers keep the exception they wrap: SQLAlchemy ``orig``, urllib3 and urllib ``reason``,
#: aiohttp ``os_error``, google-api-core ``cause``; the others are common in application code.
_WRAPPED = (
    "orig", "reason", "original_exception", "original_error", "inner_exception", "last_exception",
    "base_exception", "cause", "os_error",
)  # fmt: skip

#: Leading arguments that may be exceptions: httpcore keeps the original only there.
_ARGUMENTS = 4

_PATH_LIMIT = 500


@dataclass(frozen=True, eq=False)
class Link:
    """An exception, and the one through which it was reached."""

    exc: BaseException
    via: Link | None = None

    def path(self) -> str:
        """The type names from the raised exception to this one, as ``Outer <- inner.Error``."""
        names, link = [], self
        while link.via is not None:
            names.append(shown_name(type(link.exc)))
            link = link.via
        names.append(shown_name(type(link.exc)))
        return clip(" <- ".join(reversed(names)), _PATH_LIMIT)


class Budget:
    """How many exceptions one decision may still look at."""

    def __init__(self, left: int = NODE_LIMIT) -> None:
        self.left = left

    def spend(self) -> bool:
        """Take one; False when none is left."""
        self.left -= 1
        return self.left >= 0


def walk(
    start: Link, follow: Callable[[BaseException], list[BaseException]], budget: Budget
) -> Iterator[Link]:
    """``start`` and what ``follow`` leads to, nearest first, each exception once.

    The objects are kept while walking: a property may make a new exception at each reading, and the
    id of a collected one is given out again.
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


def causes(exc: BaseException) -> list[BaseException]:
    """What an undecided exception stands for: its cause and what it wraps, else its context.

    The context counts only when nothing explicit is there and ``from None`` did not hide it.
    """
    explicit = _explicit(exc)
    if explicit or read(exc, "__suppress_context__") is not False:
        return explicit
    return _exceptions(read(exc, "__context__"))


def reachable(exc: BaseException) -> list[BaseException]:
    """Everything linked to ``exc``: causes, hidden contexts too, and members of a group."""
    return [*_explicit(exc), *_exceptions(read(exc, "__context__")), *members(exc)]


def members(exc: BaseException) -> tuple[BaseException, ...]:
    """The exceptions of a group; empty for what is none, or pretends to be one."""
    inner = read(exc, "exceptions")
    if type(inner) is not tuple or len(inner) > NODE_LIMIT:
        return ()
    return inner if all(_is_exception(item) for item in inner) else ()


def _explicit(exc: BaseException) -> list[BaseException]:
    wrapped = (read(exc, name) for name in _WRAPPED)
    return _exceptions(read(exc, "__cause__"), *wrapped, *arguments(exc)[:_ARGUMENTS])


def _exceptions(*values: object) -> list[BaseException]:
    return [value for value in values if _is_exception(value)]  # type: ignore[misc]


def _is_exception(value: object) -> bool:
    # Not isinstance(): a mock's __class__ may claim to be an exception.
    return issubclass(type(value), BaseException)
