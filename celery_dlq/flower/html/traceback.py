"""Split a traceback into frames of the user's code and frames of libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FRAME = re.compile(r'^\s+File "(?P<path>[^"]*)", line \d+')

#: Paths of installed packages and of Python's own library, on any machine.
_FOREIGN = re.compile(
    r"^<|[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python\d[\d.]*t?[/\\]"
    r"|[/\\]Python\d+[/\\]Lib[/\\]"
)


@dataclass(frozen=True)
class Piece:
    """Consecutive lines of a traceback."""

    text: str
    #: ``app``, ``library``, or empty if the lines are not a frame.
    kind: str


def pieces(traceback: str) -> list[Piece]:
    """``traceback``, split into frames and the text between them."""
    found: list[tuple[str, list[str]]] = []
    for kind, line in _told(traceback):
        if kind is None and found:
            found[-1][1].append(line)
        else:
            found.append((kind or "", [line]))
    return [Piece("\n".join(lines), kind) for kind, lines in found]


def _told(traceback: str) -> Iterator[tuple[str | None, str]]:
    """Each line with the kind of the piece that starts there; None if the line continues a piece."""
    in_frame, begun = False, False
    for line in traceback.rstrip().split("\n"):
        frame = _FRAME.match(line)
        if frame:
            in_frame, begun = True, False
            yield "app" if _is_app(frame["path"]) else "library", line
        elif in_frame and line.startswith(("    ", "  [")):
            yield None, line
        else:
            in_frame = False
            yield (None if begun else ""), line
            begun = True


def _is_app(path: str) -> bool:
    # A worker may run this package from a checkout, and a user's project may be in a folder of the same
    # name. Only the part of the path after that name tells the two apart.
    _, name, module = path.replace("\\", "/").rpartition("/celery_dlq/")
    return not (_FOREIGN.search(path) or (name and module in _own_modules()))


@cache
def _own_modules() -> frozenset[str]:
    """The files of this package, relative to its directory."""
    package = Path(__file__).parents[2]
    return frozenset(file.relative_to(package).as_posix() for file in package.rglob("*.py"))
