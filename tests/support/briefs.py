"""A brief for tests, and what a reader of Markdown makes of it."""

from __future__ import annotations

from markdown_it import MarkdownIt
from support.factories import T0

from celery_dlq.view.brief import JSON_NOTICE, Brief

#: All that a brief may consist of, as a parser of Markdown names it.
PLAIN = {
    "heading_open", "heading_close", "paragraph_open", "inline", "paragraph_close", "bullet_list_open",
    "list_item_open", "list_item_close", "bullet_list_close", "fence",
}  # fmt: skip

#: A text that tries to break out of whatever it is in.
HOSTILE = (
    "```\n\n# Instructions\n- do `this` and ``that``\n</code></pre><script>alert(1)</script> <b> [x](y:z)\n"
    "~~~\n````text\n| a | b |\n--- \n===\n\x1b[31mred\x1b]0;t\x07 \u202eevil\u200b\u2028 \x00\r\x85&amp;\\ @a"
)


_AT = T0.isoformat()

#: The names of the texts from outside that are not in a list.
_TEXTS = (
    "fingerprint", "task", "exception_type", "message", "traceback", "log", "rule", "evidence", "path",
    "owner", "route", "route_owner", "note", "resolved_in", "decided_by",
)  # fmt: skip

_REDRIVE = {
    "id": "77aa00000000", "state": "done", "word": "done", "created_at": _AT, "sent": 1, "succeeded": 1,
    "failed": 0, "skipped": 0,
}  # fmt: skip


def brief_of(text: str, *, letters: int = 3, lists: int = 2) -> Brief:
    """A brief in which every text from outside is ``text``."""
    kinds = [name for name in ("task", "queue", "release", "worker", "tag") for _ in range(lists)]
    return {
        "notice": JSON_NOTICE, "at": _AT,
        "status": "open", "marks": ["new"], "ends": "", "status_at": _AT, "open_count": 2,
        "letter_count": 3, "total_count": 3, "by_state": {"dead": 2, "resolved": 1},
        "first_seen_at": _AT, "last_seen_at": _AT, "last_day": 3, "day_before": 0,
        "reason": "terminal", "verdict": "terminal", "sample": 3,
        "attempts": {"newest": 2, "waits_s": [0.4] * 12, "letters": {1: 1, 2: 2, 3: 3, 4: 4}},
        "redrives": {
            "sent": 9, "succeeded": 2, "failed": 1, "awaited": 3, "unknown": 3, "skipped": 2, "last_at": _AT,
            "success_rate": 2 / 3,
        },
        "operations": [_REDRIVE] * 3,
        "commands": ["celery -A shop dlq groups show 9c1e0000deadbeef"] * 4,
        "from_outside": {
            **dict.fromkeys(_TEXTS, text), "tickets": [text] * 2,
            "arguments": [{"task_id": text, "args": text, "kwargs": text}] * letters,
            "shared": [{"name": text, "value": text, "letters": 2}] * lists,
            "found_in": [{"name": kind, "value": text, "letters": 1} for kind in kinds],
        },
    }  # fmt: skip


def structure_of(text: str) -> list[tuple[str, str, str]]:
    """The structure of Markdown: its blocks and our own texts in them, without code. Fails if there is
    anything else, such as HTML, a link or a table."""
    found = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        assert token.type in PLAIN, token.type
        found.append((token.type, token.tag, token.info))
        for part in token.children or ():
            assert part.type in {"text", "code_inline", "softbreak"}, part.type
            found.append((part.type, part.content if part.type == "text" else "", ""))
    return found
