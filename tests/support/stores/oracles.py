"""Questions to a store with planted secrets: one with a secret, one with another text of the same kind. If
the answers differ, a person can try out secrets, or learn one letter by letter."""

from __future__ import annotations

import html
import re
from urllib.parse import quote, quote_plus

from support.stores.planted_secrets import SECRET

#: A text like the secret that no letter has.
OTHER = f"{SECRET[:-1]}V"

#: The ways to write a guess so that it may meet a secret where it is stored: bare, after its name, and as an
#: argument by its position or its place.
WRITTEN = ("{}", "password={}", "1={}", "kwargs.accessToken={}")

#: Marks and tokens of forms, which are different each time.
_CHANGING = re.compile(r'(name="(?:mark|_xsrf|seen)" value=")[^"]*')


def questions():
    """Pairs of texts: a true and a false one."""
    for form in WRITTEN:
        yield form.format(SECRET), form.format(OTHER)


def without(answer: str, asked: str) -> str:
    """``answer`` without the question that it repeats, however that is escaped or cut, and without what is
    different each time."""
    forms = {
        asked,
        html.escape(asked),
        quote(asked),
        quote_plus(asked),
        quote(asked, safe=""),
        repr(asked)[1:-1],
    }
    forms |= {form.replace('"', '\\"') for form in forms}
    forms |= {html.escape(form) for form in forms} | {form.lower() for form in forms}
    for form in sorted(forms, key=len, reverse=True):
        answer = answer.replace(form, "<asked>")
    return _CHANGING.sub(r"\1", answer)
