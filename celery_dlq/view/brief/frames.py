"""A traceback with the user's own frames, in which lines stand for the frames of libraries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from celery_dlq.regroup.frames import FRAME, LIBRARY_FRAMES, REPEATED, is_own
from celery_dlq.view.text import counted


@dataclass(frozen=True)
class _Frame:
    lines: tuple[str, ...]
    is_own: bool


def own_traceback(text: str) -> str:
    """The traceback ``text`` without the frames of libraries. If an exception has no frames of the user's
    code, its innermost frames stay."""
    lines, stack = list[str](), list[_Frame]()
    for line in text.splitlines():
        if found := FRAME.match(line):
            stack.append(_Frame((line,), is_own(found["path"])))
        elif stack and _continues(line):
            stack[-1] = _Frame((*stack[-1].lines, line), stack[-1].is_own)
        else:
            lines += _shown(stack)
            lines.append(line)
            stack = []
    return "\n".join([*lines, *_shown(stack)])


def _continues(line: str) -> bool:
    """Whether ``line`` belongs to the frame before it: its source, the marks under it, or its repetitions."""
    return line.startswith("    ") or REPEATED.match(line) is not None


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
