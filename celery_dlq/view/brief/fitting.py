"""Makes a brief short enough, and its texts from outside safe to print.

The number of tokens depends on the model, so it is estimated: a token for each :data:`BYTES_OF_TOKEN` bytes
of UTF-8. Common tokenizers make one of about four bytes of English or source, and of about three bytes of
other scripts. A text that is mostly ids or digits may have more tokens than that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from celery_dlq.redact import ELIDED
from celery_dlq.view.brief.contents import Arguments, Brief, Outside
from celery_dlq.view.groups import Share
from celery_dlq.view.text import counted, visible, visible_lines

#: The most tokens of a brief, and the bytes that stand for one.
TOKEN_LIMIT, BYTES_OF_TOKEN = 4_000, 3

#: The names of the parts that may be cut, as the brief says them.
_NAMES = {
    "traceback": "traceback",
    "message": "message",
    "note": "note",
    "arguments": "arguments",
    "value": "short values",
}


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    """The most bytes of each text, as it is printed."""

    traceback: int = 6_000
    message: int = 1_500
    note: int = 1_500
    #: One letter's positional or keyword arguments.
    arguments: int = 800
    #: Any other value.
    value: int = 500


#: No text is cut further. All parts together then have less than half of the limit, also as JSON in ASCII, in
#: which a byte of UTF-8 has up to three.
_LEAST = _Sizes(traceback=300, message=120, note=80, arguments=80, value=32)


def tokens_of(text: str) -> int:
    """An estimate of the number of tokens in ``text``, rounded up."""
    return -(-_size(text) // BYTES_OF_TOKEN)


def fitted(brief: Brief, write: Callable[[Brief], str], *, limit: int = TOKEN_LIMIT) -> str:
    """The text that ``write`` makes of ``brief``. Its texts are made visible and then cut, the longest part
    first, until no more than ``limit`` tokens are left."""
    seen = replace(brief, outside=_map(brief.outside, visible, _block))
    sizes = _Sizes()
    while True:
        text = write(_cut(seen, sizes))
        smaller = _smaller(seen.outside, sizes)
        if tokens_of(text) <= limit or smaller == sizes:
            return text
        sizes = smaller


def _smaller(outside: Outside, sizes: _Sizes) -> _Sizes:
    """``sizes``, in which that of the longest part is halved; the same if all are as small as possible."""
    shown = _within(outside, sizes)
    left = {
        name: _size(_part(shown, name))
        for name in _NAMES
        if getattr(sizes, name) > getattr(_LEAST, name)
    }
    if not left:
        return sizes
    longest = max(left, key=lambda name: left[name])
    least = getattr(_LEAST, longest)
    return replace(sizes, **{longest: max(least, getattr(sizes, longest) // 2)})


def _cut(brief: Brief, sizes: _Sizes) -> Brief:
    shown = _within(brief.outside, sizes)
    return replace(brief, outside=shown, cut=tuple(_said(brief.outside, shown)))


def _said(whole: Outside, shown: Outside) -> list[str]:
    """The parts that were cut, with their bytes before and after."""
    said = []
    for name, words in _NAMES.items():
        before, after = _part(whole, name), _part(shown, name)
        if before != after:
            said.append(f"{words}: {_size(after):,} of {counted(_size(before), 'byte')} are shown")
    return said


def _part(outside: Outside, name: str) -> str:
    """All text of one part."""
    if name == "arguments":
        return "".join(one.args + one.kwargs for one in outside.arguments)
    if name != "value":
        return str(getattr(outside, name))
    found: list[str] = []

    def add(text: str) -> str:
        found.append(text)
        return text

    _map(outside, add, lambda _name, text: text)
    return "".join(found)


def _within(outside: Outside, sizes: _Sizes) -> Outside:
    def cut_block(name: str, text: str) -> str:
        return _cut_middle(text, getattr(sizes, name))

    return _map(outside, lambda text: _cut_end(text, sizes.value), cut_block)


def _map(
    outside: Outside, value: Callable[[str], str], block: Callable[[str, str], str]
) -> Outside:
    """``outside`` with other texts: those of one line by ``value``, and long ones by ``block``, which also
    gets the name of the part."""

    def changed(name: str, item: Any) -> Any:
        if isinstance(item, tuple):
            return tuple(changed(name, one) for one in item)
        if isinstance(item, Share):
            return replace(item, name=value(item.name), value=value(item.value))
        if isinstance(item, Arguments):
            args, kwargs = block(name, item.args), block(name, item.kwargs)
            return replace(item, task_id=value(item.task_id), args=args, kwargs=kwargs)
        return block(name, item) if name in _NAMES else value(item)

    given = {item.name: getattr(outside, item.name) for item in fields(outside)}
    return Outside(**{name: changed(name, item) for name, item in given.items()})


def _block(_name: str, text: str) -> str:
    return "\n".join(visible_lines(text.strip("\n")))


def _cut_end(text: str, size: int) -> str:
    whole = text.encode()
    return text if len(whole) <= size else _decoded(whole[: size - len(ELIDED.encode())]) + ELIDED


def _cut_middle(text: str, size: int) -> str:
    """``text`` without its middle, because a traceback ends with the exception, and a message begins with
    its most important words."""
    whole = text.encode()
    if len(whole) <= size:
        return text
    mark = f"\n{ELIDED} [{counted(len(whole) - size, 'byte')} left out] {ELIDED}\n"
    half = max(0, size - len(mark.encode())) // 2
    return _decoded(whole[:half]) + mark + _decoded(whole[len(whole) - half :])


def _decoded(part: bytes) -> str:
    # A cut may have divided a character.
    return part.decode("utf-8", "ignore")


def _size(text: str) -> int:
    return len(text.encode("utf-8", "backslashreplace"))
