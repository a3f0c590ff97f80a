"""A traceback as pieces, so that a screen can mark, fold or leave out the frames of libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from celery_dlq.view.text import counted
from celery_dlq.worker.grouping import LIBRARY_FRAMES

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
    # A worker may run this package from a checkout, and a user's project may be in a folder of the same name.
    # The part of the path after that name shows which of the two it is.
    _, name, module = path.replace("\\", "/").rpartition("/celery_dlq/")
    return not (_FOREIGN.search(path) or (name and module in _own_modules()))


@cache
def _own_modules() -> frozenset[str]:
    """The files of this package, relative to its directory."""
    package = Path(__file__).parents[1]
    return frozenset(file.relative_to(package).as_posix() for file in package.rglob("*.py"))


def own_traceback(text: str) -> str:
    """The traceback ``text`` without the frames of libraries. If an exception has no frames of the user's
    code, its innermost frames stay."""
    shown, stack = list[str](), list[Piece]()
    for piece in pieces(text):
        if piece.kind:
            stack.append(piece)
        else:
            shown += [*_without_libraries(stack), piece.text]
            stack = []
    return "\n".join([*shown, *_without_libraries(stack)])


def _without_libraries(stack: Sequence[Piece]) -> Iterator[str]:
    has_own = any(frame.kind == "app" for frame in stack)
    inner = len(stack) - LIBRARY_FRAMES
    left_out = 0
    for place, frame in enumerate([*stack, None]):
        if frame and not (frame.kind == "app" or (not has_own and place >= inner)):
            left_out += 1
            continue
        if left_out:
            yield f"  … {counted(left_out, 'frame')} of libraries"
        if frame:
            yield frame.text
        left_out = 0
