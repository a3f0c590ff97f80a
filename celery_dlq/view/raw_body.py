"""Bytes for people: as text where they are text, else as a hex dump; never more than a screen or two."""

from __future__ import annotations

from celery_dlq.letter import DeadLetter
from celery_dlq.view.text import counted, visible_lines

#: Bytes that are shown, and bytes to a line of a dump.
SHOWN_LIMIT, _LINE = 1_024, 16


def has_unread_body(letter: DeadLetter) -> bool:
    """Whether nobody could read arguments out of the letter's body. Where somebody did, their display
    copies are shown instead, in which secrets are hidden."""
    return bool(letter.envelope.body) and letter.args is None and letter.kwargs is None


def shown_body(body: bytes) -> str:
    """``body``, or its beginning with a last line that tells how much there is."""
    part = body[:SHOWN_LIMIT]
    text = _as_text(part, cut=len(body) > len(part))
    lines = _dump(part) if text is None else visible_lines(text)
    if len(body) > len(part):
        lines.append(f"… the first {len(part):,} of {counted(len(body), 'byte')}")
    return "\n".join(lines)


def _as_text(part: bytes, *, cut: bool) -> str | None:
    """The text in ``part``; None where it is none. A cut may have gone through its last character."""
    for missing in range(4 if cut else 1):
        try:
            text = part[: len(part) - missing].decode("utf-8")
        except UnicodeDecodeError:
            continue
        return text if _reads_as_text(text) else None
    return None


def _reads_as_text(text: str) -> bool:
    # One stray control character is written out; many of them are no text.
    strange = sum(not char.isprintable() and char not in "\n\r\t" for char in text)
    return strange * 10 <= len(text)


def _dump(part: bytes) -> list[str]:
    return [
        f"{start:08x}  {_hex(part[start : start + _LINE])}  {_ascii(part[start : start + _LINE])}"
        for start in range(0, len(part), _LINE)
    ]


def _hex(line: bytes) -> str:
    halves = (line[: _LINE // 2].hex(" "), line[_LINE // 2 :].hex(" "))
    return "  ".join(halves).ljust(_LINE * 3)


def _ascii(line: bytes) -> str:
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in line)
