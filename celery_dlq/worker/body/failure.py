"""What can be known of an exception where it was raised: type, message, frames, traceback."""

from __future__ import annotations

import json
import os
import sysconfig
import traceback
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any

from billiard.einfo import ExceptionInfo, ExceptionWithTraceback
from celery.exceptions import Reject

from celery_dlq.headers import ATTEMPTS_HEADER
from celery_dlq.letter import Attempt, attempt_from_dict, attempt_to_dict
from celery_dlq.redact import TRACEBACK_LIMIT, clip_middle, safe_message, safe_text

#: Attempts kept in the retry header: the first, which opens the retry window, and the latest.
ATTEMPT_LIMIT = 20

#: Exceptions of a cause chain, and frames of each, that a traceback shows.
_CHAIN_LIMIT, _FRAME_LIMIT = 8, 40

#: Characters of a message inside a traceback; the letter keeps the whole one beside it.
_INNER_MESSAGE_LIMIT = 2_000

_FOREIGN_PATHS = tuple(
    {
        os.path.join(sysconfig.get_path(name), "")
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
)


def type_name(exc_type: type) -> str:
    """The dotted name of an exception type; builtins without their module."""
    module = getattr(exc_type, "__module__", None)
    name = str(getattr(exc_type, "__qualname__", exc_type.__name__))
    return name if module in (None, "builtins") else f"{module}.{name}"


def unwrap(einfo: ExceptionInfo) -> BaseException:
    """The exception of ``einfo``, which pools without child processes hand over wrapped."""
    exc: BaseException = einfo.exception
    return exc.exc if isinstance(exc, ExceptionWithTraceback) else exc


def app_frames(exc: BaseException) -> tuple[str, ...]:
    """The frames of the user's own code as ``module:function``, outermost first; where there are
    none, the frames of libraries, so that failures inside them still tell apart."""
    frames = [
        (frame.f_code.co_filename, f"{frame.f_globals.get('__name__')}:{frame.f_code.co_name}")
        for frame in _frames(exc.__traceback__)
    ]
    own = tuple(name for path, name in frames if _is_app(path))
    return own or tuple(name for _path, name in frames[-3:])


def _frames(tb: TracebackType | None) -> Iterator[Any]:
    while tb is not None:
        yield tb.tb_frame
        tb = tb.tb_next


@lru_cache(maxsize=4_096)
def _is_app(path: str) -> bool:
    if path.startswith("<") or os.sep + "celery_dlq" + os.sep in path:
        return False
    return not path.startswith(_FOREIGN_PATHS)


def traceback_text(exc: BaseException) -> str:
    """The traceback with its causes, bounded and safe whatever the exceptions do."""
    parts = []
    for link, node in _chain(exc):
        stack = traceback.format_list(traceback.extract_tb(node.__traceback__, limit=-_FRAME_LIMIT))
        message = safe_message(node)[:_INNER_MESSAGE_LIMIT]
        heading = ["Traceback (most recent call last):\n"] if stack else []
        line = f"{type_name(type(node))}: {message}" if message else type_name(type(node))
        parts.append("".join([*heading, *stack, line, "\n", link]))
    return clip_middle("".join(reversed(parts)), TRACEBACK_LIMIT)


def bounded_traceback(text: str) -> str:
    """A traceback that somebody else formatted, as it is stored."""
    return clip_middle(safe_text(text), TRACEBACK_LIMIT)


def shed_frames(einfo: ExceptionInfo) -> None:
    """Leave out of ``einfo`` billiard's copy of its frames, which the worker's parent shows of a Reject
    only. Each failure would pickle and send dozens of objects that live there, to no effect, until its
    letter is safe, and that every garbage collection meanwhile walks through. The traceback's text stays.
    """
    if not isinstance(unwrap(einfo), Reject):
        einfo.tb = None


def _chain(exc: BaseException) -> Iterator[tuple[str, BaseException]]:
    """The exception and what led to it, each with the sentence that leads on to its follower."""
    link, node, seen = "", exc, set[int]()
    while id(node) not in seen and len(seen) < _CHAIN_LIMIT:
        seen.add(id(node))
        yield link, node
        if node.__cause__ is not None:
            link = "\nThe above exception was the direct cause of the following exception:\n\n"
            node = node.__cause__
        elif node.__context__ is not None and not node.__suppress_context__:
            link = "\nDuring handling of the above exception, another exception occurred:\n\n"
            node = node.__context__


def read_attempts(headers: Mapping[str, Any] | None) -> tuple[Attempt, ...]:
    """The earlier attempts that a retried message carries; none when its header is unreadable,
    since a broken history must not cost the letter."""
    text = (headers or {}).get(ATTEMPTS_HEADER)
    if not text:
        return ()
    try:
        return _parse_attempts(text)
    except (ValueError, TypeError, KeyError, AttributeError):
        return ()


@lru_cache(maxsize=1)
def _parse_attempts(text: str) -> tuple[Attempt, ...]:
    # Each failure of a retried message asks two or three times.
    return tuple(attempt_from_dict(item) for item in json.loads(text))


def write_attempts(attempts: Sequence[Attempt]) -> str:
    """The header value that carries ``attempts`` to the next run."""
    if len(attempts) > ATTEMPT_LIMIT:
        attempts = (attempts[0], *attempts[1 - ATTEMPT_LIMIT :])
    return json.dumps([attempt_to_dict(attempt) for attempt in attempts], separators=(",", ":"))
