"""Texts with a secret in them, whatever its length, its place and the length of the text; and where a letter
with such a text in all its fields still shows a part of the secret."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any, NamedTuple

from celery import Celery
from hypothesis import strategies as st
from support.factories import T0, attempt, envelope, operation

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.base.redact import safe_message
from celery_dlq.hooks.words import letter_data
from celery_dlq.model.fingerprint import Grounds
from celery_dlq.model.group import Group
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.operation import Orders
from celery_dlq.model.states import Reason
from celery_dlq.model.terms import leaves
from celery_dlq.store.base import AuditRow
from celery_dlq.store.hiding import hide_act, hide_group, hide_letter, hide_operation
from celery_dlq.store.rows.rows import letter_row, storable
from celery_dlq.tickets.text import text_about
from celery_dlq.view.letters import WholeLetter, shown_body
from celery_dlq.view.records import letter_record
from celery_dlq.worker.body.log import RunLog
from celery_dlq.worker.end.letters import dead_letter
from celery_dlq.worker.failure import bounded_traceback, failure_after, traceback_text
from celery_dlq.worker.message import Contents

#: Lengths at which texts are cut somewhere.
LIMITS = (500, 1_024, 2_000, 2_048, 8_192, 16_384, 32_768)

#: Characters of a secret that must not be seen together.
PART = 6

#: No other part of a text has this many capital letters and digits.
_RUNS = re.compile(rf"[A-Z0-9]{{{PART},}}")

_WORDS, _RUN = "the order was not paid because of a late answer\n    ", "x"


class Planted(NamedTuple):
    """A text, and the secret in it."""

    kind: str
    text: str
    secret: str

    def is_in(self, text: str) -> bool:
        """Whether ``text`` has a part of the secret."""
        return any(
            run[place : place + PART] in self.secret
            for run in _RUNS.findall(text)
            for place in range(len(run) - PART + 1)
        )


def _lines(secret: str) -> str:
    return "\n".join(secret[place : place + 64] for place in range(0, len(secret), 64))


#: The ways to write a secret, by name.
KINDS = {
    "name": "password={}".format,
    "name in a query": "https://h/pay?n=1&access_token={}&m=2".format,
    "name in JSON": lambda secret: json.dumps({"n": 1, "api_key": secret, "m": [2]}),
    "name in JSON in JSON": lambda secret: json.dumps(json.dumps({"api_key": secret, "m": 2})),
    "name in Python": lambda secret: repr({"n": 1, "DB_PASS": secret, "m": 2}),
    "list after a name": lambda secret: f"passwords=[[1, {secret!r}], 2] m=2",
    "header": "X-Auth-Token: {}".format,
    "one word": "token: {}".format,
    "option": "mysql --password {} -h db".format,
    "option in quotes": lambda secret: f"mysql --password {json.dumps(secret)} -h db",
    "pair": lambda secret: repr([("password", secret), ("n", 1)]),
    "pair in JSON": lambda secret: json.dumps([["Authorization", secret], ["n", "1"]]),
    "named value": lambda secret: json.dumps([{"name": "API_KEY", "value": secret}]),
    "address": "postgresql://shop:{}@db/shop".format,
    "user of an address": "https://{}@h/a.git".format,
    "bearer": "the header was Bearer {}".format,
    "basic": "authorization: Basic {}=".format,
    "web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.{}".format,
    "github": "ghp_0123456789abcdef{}".format,
    "gitlab": "glpat-0123456789abcdef{}".format,
    "slack": "xoxb-0123456789abcdef{}".format,
    "stripe": "sk_live_0123456789abcdef{}".format,
    "openai": "sk-0123456789abcdef{}".format,
    "webhook": "whsec_0123456789abcdef{}".format,
    "key": lambda secret: (
        f"-----BEGIN RSA PRIVATE KEY-----\n{_lines(secret)}\n-----END RSA PRIVATE KEY-----"
    ),
    "encrypted key": lambda secret: (
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0\n\n"
        f"{_lines(secret)}\n-----END RSA PRIVATE KEY-----"
    ),
    "key on one line": lambda secret: repr(
        f"-----BEGIN PRIVATE KEY-----\n{_lines(secret)}\n-----END PRIVATE KEY-----"
    ),
    "cookie": "Cookie: n=1; session={}; m=2".format,
}

#: Those in which a secret may have blanks and quotes, too.
_QUOTED = (
    "name in JSON",
    "name in Python",
    "pair in JSON",
    "named value",
    "list after a name",
    "pair",
    "option in quotes",
)


def planted(kind: str, seed: int, length: int, before: int, after: int, *, is_run: bool) -> Planted:
    """A text of this kind.

    :param length: characters of the secret.
    :param before: characters before it.
    :param after: characters after it.
    :param is_run: whether the text around the secret is one run of characters, without blanks.
    """
    random = Random(seed)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + ("'\" \\" if kind in _QUOTED else "")
    # Only texts with digits are like a secret in some places.
    secret = "".join(random.choice("0123456789" if n % 5 == 1 else letters) for n in range(length))
    filler = _RUN if is_run else _WORDS
    text = (
        (filler * (before // len(filler) + 1))[:before],
        (filler * (after // len(filler) + 1))[:after],
    )
    return Planted(kind, f"{text[0]} {KINDS[kind](secret)} {text[1]}", _inner(kind, secret))


def _inner(kind: str, secret: str) -> str:
    return _lines(secret) if "key" in kind and "name" not in kind else secret


def texts(limits: tuple[int, ...], longest: int) -> st.SearchStrategy[Planted]:
    """Texts of all kinds. Many have the secret where texts are cut.

    :param limits: where they are cut.
    :param longest: characters of the longest secret.
    """
    return st.builds(
        planted,
        st.sampled_from(sorted(KINDS)), st.integers(0, 2**32),
        st.one_of(st.integers(12, 200), st.integers(12, longest)),
        st.one_of(
            st.integers(0, limits[-1]),
            st.builds(lambda limit, less: limit - less, st.sampled_from(limits), st.integers(0, 250)),
        ),
        st.integers(0, limits[-1]), is_run=st.booleans(),
    )  # fmt: skip


@cache
def queue() -> DeadLetterQueue:
    """The queue of an app with a task that has a secret among its positional parameters."""
    app = Celery("secrets", broker="memory://", set_as_current=False)

    @app.task(name="shop.login", bind=True, shared=False)
    def login(self: Any, user: str, password: str, *rest: Any, pin: str = "") -> None: ...

    return DeadLetterQueue.of(app)


def letter_with(one: Planted) -> DeadLetter:
    """A letter as a worker makes it, with the text in each of its fields, and the secret by its position."""
    error = _raised(one.text)
    message = safe_message(error)
    last = attempt(message=message, evidence=message)
    failure = failure_after(
        (last,), Reason.TERMINAL,
        traceback=traceback_text(error), grounds=Grounds(needs_message=True), log=_logged(one.text),
    )  # fmt: skip
    args = ["ann", one.secret, one.text, [one.text, {"deep": one.text}], one.text.encode()]
    kwargs = {"note": one.text, one.text: 1, "pin": 2, "password": one.secret}
    headers = {
        "task": "shop.login", "forwarded": one.text, "raw": one.text.encode(), "argsrepr": repr(args),
    }  # fmt: skip
    sent = envelope("5ec4", headers=headers, properties={"reply_to": one.text})
    contents = Contents({"task": "shop.login"}, args, kwargs)
    return dead_letter("5ec4", sent, contents, failure, queue())


def _raised(text: str) -> BaseException:
    try:
        try:
            raise KeyError(text)
        except KeyError as error:
            raise ValueError(text) from error
    except ValueError as error:
        return error


def _logged(text: str) -> str:
    log = RunLog(5, queue().redactor)
    log.add(logging.LogRecord("shop", logging.ERROR, "", 1, "%s", (text,), None))
    return log.text()


def leaks(one: Planted) -> list[str]:
    """The fields in which a part of the secret is stored or shown."""
    return [name for name, text in _outputs(one) if one.is_in(text)]


def _outputs(one: Planted) -> Iterator[tuple[str, str]]:
    redactor, made = queue().redactor, letter_with(one)
    kept = storable(made, redactor)
    row = letter_row(kept)
    for name in ("message", "args", "kwargs", "log"):
        yield f"stored {name}", _flat(row[name])
    yield "values", _flat([text for _path, text in leaves(kept.args, kept.kwargs)])
    shown = hide_letter(kept, redactor)
    for name, value in WholeLetter(letter=shown).record().items():
        yield f"shown {name}", _flat(value)
    for name, value in letter_record(shown, owner="").items():
        yield f"listed {name}", _flat(value)
    yield "event", _flat(letter_data(shown))
    yield "ticket", _flat(text_about(shown, "shop").markdown())
    # As an earlier release stored them: cut, and not hidden.
    raw = made.with_(args=["ann", one.secret], message=safe_message(ValueError(one.text)))
    yield "earlier", _flat(WholeLetter(letter=hide_letter(raw, redactor)).record())
    yield "body", shown_body(one.text.encode())
    yield (
        "long traceback",
        redactor.traceback(bounded_traceback(f"Traceback:\n{one.text}\nKeyError")),
    )
    yield from _said(one, redactor)


def _said(one: Planted, redactor: Any) -> Iterator[tuple[str, str]]:
    group = Group(
        fingerprint="9c1e", task="shop.login", exception_type="ValueError", message=one.text, open_count=1,
        total_count=1, first_seen_at=T0, last_seen_at=T0, note=one.text, owner=one.text,
    )  # fmt: skip
    yield "group", _flat(vars(hide_group(group, redactor)))
    redriven = operation(orders=replace(Orders(), why=one.text), cause=one.text)
    yield "operation", _flat(vars(hide_operation(redriven, redactor)))
    act = AuditRow(
        id=1,
        host="h",
        at=T0,
        who="ann",
        act="note",
        count=1,
        why=one.text,
        detail={"note": one.text},
    )
    yield "act", _flat(vars(hide_act(act, redactor)))


def _flat(value: Any) -> str:
    """``value`` as text in which nothing is escaped."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return "\n".join(map(_flat, [*value, *value.values()]))
    if isinstance(value, (list, tuple)):
        return "\n".join(map(_flat, value))
    return str(value)
