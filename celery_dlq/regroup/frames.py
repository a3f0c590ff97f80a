"""App frames from the text of a traceback.

The text has paths, and a fingerprint is made of names of modules, which depend on the import path of the
worker. So there are several candidates, and a fingerprint that is known tells which of them is right.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import NamedTuple

from celery_dlq.model.fingerprint import FRAME_LIMIT
from celery_dlq.worker.failure import is_app

_HEADER = "Traceback (most recent call last):\n"
#: The first line of a frame.
FRAME = re.compile(r'^  File "(?P<path>.+)", line \d+, in (?P<function>.+)$')
#: The line that stands for repetitions of the frame before it.
REPEATED = re.compile(r"^  \[Previous line repeated (\d+) more times?\]$")

#: Code that is not the user's, on whatever machine: installed packages, and Python's own.
_FOREIGN = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d[\d.]*[/\\]", re.I)

#: The most frames of libraries that stand in for missing app frames, counted from where the exception was
#: raised.
LIBRARY_FRAMES = 3

#: The most directories above a file that may be the one that is on the import path.
_DEPTH_LIMIT = 12


class _Frame(NamedTuple):
    path: str
    function: str


def candidates(traceback: str, import_path: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The frames that the failure with this traceback may have had, the likeliest first; each as
    ``module:function``, outermost first.

    :param import_path: directories that modules are imported from.
    """
    return _candidates(_relevant(list(_frames(traceback))), import_path)


@lru_cache(maxsize=4_096)  # most letters share their frames with others
def _candidates(
    frames: tuple[_Frame, ...], import_path: tuple[str, ...]
) -> tuple[tuple[str, ...], ...]:
    found = [_named(frames, import_path)]
    for depth in range(1, _DEPTH_LIMIT):
        root = _root(frames, depth)
        if root is None:
            break
        found.append(_named(frames, (root, *import_path)))
    # A message that no worker could run, and a worker that died, have a letter without frames.
    return tuple(dict.fromkeys([*found, ()]))


def import_path() -> tuple[str, ...]:
    """The directories that this process imports modules from, the most specific first."""
    return tuple(sorted({path for path in sys.path if path}, key=len, reverse=True))


def is_own(path: str) -> bool:
    """Whether a file that a traceback names is the user's own, on whatever machine it was written."""
    return is_app(path) and not _FOREIGN.search(path)


def _frames(traceback: str) -> Iterator[_Frame]:
    """The frames of the exception that the text ends with."""
    last: _Frame | None = None
    for line in traceback.rpartition(_HEADER)[2].splitlines():
        if found := FRAME.match(line):
            last = _Frame(found["path"], found["function"])
            yield last
        elif last and (repeated := REPEATED.match(line)):
            yield from [last] * min(int(repeated[1]), FRAME_LIMIT)


def _relevant(frames: list[_Frame]) -> tuple[_Frame, ...]:
    own = [one for one in frames if is_own(one.path)]
    return tuple(own[-FRAME_LIMIT:] or frames[-LIBRARY_FRAMES:])


def _named(frames: Sequence[_Frame], import_path: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{_module(one.path, import_path)}:{one.function}" for one in frames)


def _root(frames: Sequence[_Frame], depth: int) -> str | None:
    """The directory this many levels above the innermost file; None if the path is shorter."""
    parents = _path(frames[-1].path).parents if frames else ()
    return str(parents[depth - 1]) if depth <= len(parents) else None


def _module(path: str, import_path: Sequence[str]) -> str:
    """The name of the module in a file, if it is imported from one of these directories; otherwise that of
    the file."""
    file = _path(path.removesuffix(".py"))
    root = next((one for one in import_path if file.is_relative_to(one)), None)
    parts = _below_packages(file.parts) if root is None else file.relative_to(root).parts
    return ".".join(parts[:-1] if parts[-1:] == ("__init__",) else parts)


def _below_packages(parts: tuple[str, ...]) -> tuple[str, ...]:
    """The part of a path that is below a directory of installed packages; otherwise its last part."""
    for place in range(len(parts) - 1, 0, -1):
        if parts[place - 1] in ("site-packages", "dist-packages"):
            return parts[place:]
    return parts[-1:]


def _path(path: str) -> PurePath:
    return PureWindowsPath(path) if "\\" in path else PurePosixPath(path)
