"""Message bodies for people: as text if possible, else as a hex dump, up to a screen or two."""

from __future__ import annotations

from celery_dlq.model.letter import DeadLetter
from celery_dlq.redact import hide_known
from celery_dlq.view.text import counted, visible_lines

#: Bytes that are shown, and bytes per line of a dump.
SHOWN_LIMIT, _LINE = 1_024, 16


def has_unread_body(letter: DeadLetter) -> bool:
    """Whether the arguments in the letter's body could not be read. If they could, screens show their display
    copies instead, with secrets hidden."""
    return bool(letter.envelope.body) and letter.args is None and letter.kwargs is None


def shown_body(body: bytes) -> str:
    """``body``, or its start and a last line with its size. Anything in a text that looks like a secret is
    hidden; a hex dump is not redacted."""
    part = body[:SHOWN_LIMIT]
    text = _as_text(part, cut=len(body) > len(part))
    lines = _dump(part) if text is None else visible_lines(_without_secrets(text, body))
    if len(body) > len(part):
        lines.append(f"… the first {len(part):,} of {counted(len(body), 'byte')}")
    return "\n".join(lines)


def _without_secrets(text: str, body: bytes) -> str:
    """``text``, the start of ``body``, with secrets hidden. A secret that the cut divides is recognized, too,
    because a longer part of the body is searched."""
    longer = body[: 2 * SHOWN_LIMIT]
    whole = _as_text(longer, cut=len(body) > len(longer)) or text
    return hide_known(whole)[: len(text)]


def _as_text(part: bytes, *, cut: bool) -> str | None:
    """The text in ``part``; None if it is not text. A cut may have divided its last character."""
    for missing in range(4 if cut else 1):
        try:
            text = part[: len(part) - missing].decode("utf-8")
        except UnicodeDecodeError:
            continue
        return text if _reads_as_text(text) else None
    return None


def _reads_as_text(text: str) -> bool:
    # A few control characters are escaped; many of them mean that this is not text.
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
