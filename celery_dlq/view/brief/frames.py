"""A traceback with the user's own frames, in which lines stand for the frames of libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from celery_dlq.view.text import counted
from celery_dlq.worker.grouping import LIBRARY_FRAMES, is_app

# The first line of a frame, and the line that stands for repetitions of the frame before it.
_FRAME = re.compile(r'^  File "(?P<path>.+)", line \d+, in .+$')
_REPEATED = re.compile(r"^  \[Previous line repeated \d+ more times?\]$")

#: Code that is not the user's, on whatever machine: installed packages, and Python's own.
_FOREIGN = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d[\d.]*[/\\]", re.I)


@dataclass(frozen=True)
class _Frame:
    lines: tuple[str, ...]
    is_own: bool


def own_traceback(text: str) -> str:
    """The traceback ``text`` without the frames of libraries. If an exception has no frames of the user's
    code, its innermost frames stay."""
    lines, stack = list[str](), list[_Frame]()
    for line in text.splitlines():
        if found := _FRAME.match(line):
            stack.append(_Frame((line,), _is_own(found["path"])))
        elif stack and _continues(line):
            stack[-1] = _Frame((*stack[-1].lines, line), stack[-1].is_own)
        else:
            lines += _shown(stack)
            lines.append(line)
            stack = []
    return "\n".join([*lines, *_shown(stack)])


def _is_own(path: str) -> bool:
    """Whether a file that a traceback names is the user's own, on whatever machine it was written."""
    return is_app(path) and not _FOREIGN.search(path)


def _continues(line: str) -> bool:
    """Whether ``line`` belongs to the frame before it: its source, the marks under it, or its repetitions."""
    return line.startswith("    ") or _REPEATED.match(line) is not None


def _shown(stack: Sequence[_Frame]) -> Iterator[str]:
    has_own = any(frame.is_own for frame in stack)
    inner = len(stack) - LIBRARY_FRAMES
    left_out = 0
    for place, frame in enumerate(stack):
        if frame.is_own or (not has_own and place >= inner):
            yield from _left_out(left_out)
            yield from frame.lines
            left_out = 0
        else:
            left_out += 1
    yield from _left_out(left_out)


def _left_out(frames: int) -> Iterator[str]:
    if frames:
        yield f"  … {counted(frames, 'frame')} of libraries"
