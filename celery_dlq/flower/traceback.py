"""A traceback with the frames of the user's own code told from those of libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FRAME = re.compile(r'^\s+File "(?P<path>[^"]*)", line \d+')

#: Where installed packages and Python's own library are, on whatever machine the worker ran.
_FOREIGN = re.compile(
    r"^<|[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python\d[\d.]*t?[/\\]|[/\\]celery_dlq[/\\]"
    r"|[/\\]Python\d+[/\\]Lib[/\\]"
)


@dataclass(frozen=True)
class Piece:
    """Lines of a traceback that belong together."""

    text: str
    #: ``app``, ``library``, or empty for what is no frame.
    kind: str


def pieces(traceback: str) -> list[Piece]:
    """``traceback``, cut into frames and what is between them."""
    found: list[tuple[str, list[str]]] = []
    for kind, line in _told(traceback):
        if kind is None and found:
            found[-1][1].append(line)
        else:
            found.append((kind or "", [line]))
    return [Piece("\n".join(lines), kind) for kind, lines in found]


def _told(traceback: str) -> Iterator[tuple[str | None, str]]:
    """Each line with the kind of piece that begins with it; None when it goes on."""
    in_frame, begun = False, False
    for line in traceback.rstrip().split("\n"):
        frame = _FRAME.match(line)
        if frame:
            in_frame, begun = True, False
            yield "library" if _FOREIGN.search(frame["path"]) else "app", line
        elif in_frame and line.startswith(("    ", "  [")):
            yield None, line
        else:
            in_frame = False
            yield (None if begun else ""), line
            begun = True
