"""Reads exceptions of libraries that no rule knows. Asked only where no rule has decided.

First the structured evidence: statuses, SQLSTATEs, codes, flags and words that this instance carries, under
the many names that libraries give them. Then, as the last and weakest evidence, the name of the class. What a
class says about all its instances does not count: it is a default, not a statement about this failure.

Names are read as a person would: ``ConnectionTimeout``, ``TEMPORARILY_UNAVAILABLE``, ``rate-limit-exceeded``.
The grammar is closed, over whole words. A lasting word beside a phrase counts more.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from itertools import chain, islice
from types import FunctionType, TracebackType
from typing import NamedTuple, cast

from celery_dlq.classify.builtin.cloud import GRPC_NAMES, code_name
from celery_dlq.classify.builtin.codes import phrases, words
from celery_dlq.classify.builtin.http import TRANSIENT_STATUSES, by_close_code, status_verdict
from celery_dlq.classify.builtin.postgres import by_state
from celery_dlq.classify.builtin.stdlib import lasting_cause
from celery_dlq.classify.evidence import (
    arguments,
    bases,
    call,
    dotted_name,
    number,
    read,
    shown_name,
    text_of,
)
from celery_dlq.classify.guarded import class_value, is_default, is_known, own_values, shape_of
from celery_dlq.classify.table import Finding, transient_if
from celery_dlq.classify.wait import retry_after
from celery_dlq.model.states import Verdict

#: The longest name that is read, in characters and in words.
_LENGTH, _WORDS = 80, 8

# "HTTPTimeoutError" is HTTP, Timeout, Error; "Error503" is Error, 503.
_NAME_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:/ -]*\Z")


class Saying(NamedTuple):
    """The words of a name that say something, and their meaning."""

    verdict: Verdict
    words: str


_PASSING = tuple(tuple(phrase.split()) for phrase in phrases("names.passing"))
_LASTING = words("names.lasting")


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name in CamelCase, snake_case or kebab-case, in small letters."""
    return tuple(word.lower() for word in _NAME_WORD.findall(name[:_LENGTH]))


def says(name: object) -> Saying | None:
    """The meaning of a name; None if its words decide nothing."""
    text = text_of(name)
    if text is None or len(text) > _LENGTH or not _NAME.match(text):
        return None
    parts = words_of(text)
    if len(parts) > _WORDS:
        return None
    phrase = next(filter(partial(_has, parts), _PASSING), ())
    # The other words: "bad" of "bad gateway" is not lasting.
    lasting = _LASTING.intersection(set(parts).difference(phrase))
    if lasting:
        return Saying(Verdict.TERMINAL, min(lasting))
    return Saying(Verdict.TRANSIENT, " ".join(phrase)) if phrase else None


def _has(parts: tuple[str, ...], phrase: tuple[str, ...]) -> bool:
    size = len(phrase)
    return any(parts[at : at + size] == phrase for at in range(len(parts) - size + 1))


#: The rule that decides by the name of a class.
NAME_RULE = "class.name"

#: The most values that are read of one exception, of one dict, and of the arguments.
_VALUES = 48
_ARGUMENTS = 4


# Names of attributes, as their words.
_STATUS, _CODE, _STATE, _FLAG, _CLOSE, _DICT, _RESPONSE = (
    frozenset(phrases(f"attributes.{name}"))
    for name in ("status", "code", "state", "flag", "close", "dict", "response")
)
_HTTP_STATUS = frozenset(name for name in _STATUS if name.startswith("http"))
_GRPC = _CODE.union(_STATUS, phrases("attributes.grpc"))
_WORD = _CODE.union(phrases("attributes.word"))
_CLOSE_CODES = range(1000, 1016)
# A dict or an object under such a name may have statements of its own.
_INSIDE = _DICT | _RESPONSE | _CODE
_FIRST = frozenset({"args 0"})
_IN_RESPONSE = ("status_code", "status", "code", "statusCode", "http_status")

# Properties, and methods without arguments, that make such statements.
_COMPUTED = frozenset(phrases("attributes.computed"))

# A call of such a function would only make an object that warns if nothing awaits it.
_RUNS_LATER = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR

# A code that a person may see: no sentence, and no address.
_SHORT = re.compile(r"[A-Za-z0-9_.-]{1,40}\Z")
_SHOWN = 4

_INSTALLED = re.compile("(site|dist)-packages")
_TRACEBACK = BaseException.__dict__["__traceback__"].__get__

_SQLSTATE = re.compile(r"(?=[0-9A-Z]*[0-9])[0-9A-Z]{5}\Z")

# Clients of protocols whose replies look like an HTTP status and mean something else; and the words that say
# that a client of this name speaks HTTP: "SMTP2GOApiError".
_OTHER_PROTOCOLS = frozenset({"ftp", "smtp", "sip", "amqp", "irc", "nntp", "lmtp"})
_OF_HTTP = frozenset({"http", "api"})
# The second sign that a "code" or "status" of the user's own classes is that of an HTTP answer.
_SIGNS = frozenset({"http", "api", "response", "status", "request", "gateway", "web"})
_SIGN_NAMES = frozenset({"response", "headers", "url", "request", "resp"})


class _Statement(NamedTuple):
    """A value that the instance carries."""

    #: The words of its name, joined by a space.
    name: str
    value: object
    #: Where it was found, for people.
    source: str


class Reading:
    """The general reading of one exception. Its properties and methods are asked once, when needed."""

    def __init__(self, exc: BaseException, general: General) -> None:
        self._exc, self._general = exc, general
        self._is_own = all(map(general.is_own, (_module(type(exc)), *_raiser(exc))))
        self._class_words = {word for cls in bases(type(exc)) for word in words_of(_name(cls))}

    @cached_property
    def _said(self) -> list[_Statement]:
        return list(islice(_statements(self._exc), _VALUES))

    def answered(self) -> Finding | None:
        """What its SQLSTATE, its flags, its status or its wait say."""
        return _first(self._sqlstate, partial(self._flag, True), self._status, self._wait)

    def carried(self) -> Finding | None:
        """What the statements of this instance say."""
        return _first(
            self.answered, self._grpc, self._closed, self._word, partial(self._flag, False)
        )

    def named(self) -> Finding | None:
        """What the name of the class says, or that of the nearest class above it that says anything.

        Nothing, if a lasting cause is behind the exception, or if it carries a code whose meaning only its
        library knows.
        """
        for cls in bases(type(self._exc)):
            is_own = self._general.is_own(_module(cls))
            if is_known(cls) or (is_own and not self._general.by_own_names):
                return None
            found = says(_name(cls))
            if found is None:
                continue
            if found.verdict is Verdict.TERMINAL or self._has_number():
                return None
            evidence = f"name={_name(cls)} says {found.words!r}"
            return lasting_cause(self._exc) or Finding(Verdict.TRANSIENT, NAME_RULE, evidence)
        return None

    def shown(self) -> str:
        """The codes, words and flags that it carries, for people; empty if there are none."""
        names = (_CODE | _STATUS | _STATE | _FLAG | _WORD) - {"args 0"}
        found = [
            f"{said.source}={text}"
            for said in self._said
            if said.name in names and _SHORT.match(text := _plain(said.value))
        ]
        return f"{shown_name(type(self._exc))} carries {', '.join(found[:_SHOWN])}" if found else ""

    def _has_number(self) -> bool:
        """Whether it carries a code that says nothing here: the library knows more than a name does."""
        return any(
            said.name in _CODE | _STATUS
            and (found := number(said.value)) is not None
            and found not in {0, -1}
            for said in self._said
        )

    def _values(self, names: frozenset[str]) -> Iterator[_Statement]:
        return (said for said in self._said if said.name in names)

    def _sqlstate(self) -> Finding | None:
        texts = ((text_of(said.value) or "", said.source) for said in self._values(_STATE))
        found = (by_state(*text) for text in texts if _SQLSTATE.match(text[0]))
        return next((finding for finding in found if finding is not None), None)

    def _flag(self, value: bool) -> Finding | None:
        said = next((said for said in self._values(_FLAG) if said.value is value), None)
        return said and transient_if(value, "flag.retryable", f"{said.source}={value}")

    def _status(self) -> Finding | None:
        if _OTHER_PROTOCOLS & self._class_words and not _OF_HTTP & self._class_words:
            asked = [_HTTP_STATUS]
        else:
            asked = [_STATUS, _CODE] if self._is_of_an_answer() else [_STATUS]
            # ApiError(503, "busy"), but not ApiError("503 orders failed"), nor OrderNotFound(503)
            first = next(iter(arguments(self._exc)), None)
            if type(first) is int and _OF_HTTP & {*words_of(_name(type(self._exc)))}:
                asked.append(_FIRST)
        for said in chain.from_iterable(map(self._values, asked)):
            code = number(said.value)
            if code is not None and (400 <= code <= 511 or code in TRANSIENT_STATUSES):
                evidence = f"status={code} from {said.source}"
                return Finding(status_verdict(code), "http.status", evidence)
        return None

    def _wait(self) -> Finding | None:
        if not retry_after(self._exc):
            return None
        return Finding(Verdict.TRANSIENT, "retry.after", "it says when to come back")

    def _is_of_an_answer(self) -> bool:
        """Whether a code is that of a remote answer. In the user's own modules it may mean anything."""
        return (
            not self._is_own or bool(_SIGNS & self._class_words) or any(self._values(_SIGN_NAMES))
        )

    def _grpc(self) -> Finding | None:
        for said in self._values(_GRPC):
            is_member = issubclass(type(said.value), Enum)
            name = code_name(said.value) if is_member else text_of(said.value)
            if name is not None and name.rpartition(".")[2] in GRPC_NAMES:
                return Finding(Verdict.TRANSIENT, "grpc.code", f"{said.source}={name}")
        return None

    def _closed(self) -> Finding | None:
        if "closed" not in self._class_words:
            return None
        codes = (number(said.value) or 0 for said in self._values(_CLOSE))
        return next((by_close_code(code) for code in codes if code in _CLOSE_CODES), None)

    def _word(self) -> Finding | None:
        if not self._is_of_an_answer():
            return None
        for said in self._values(_WORD):
            text = read(said.value, "name") if issubclass(type(said.value), Enum) else said.value
            found = says(text)
            if found is not None:
                return Finding(found.verdict, "code.word", f"{said.source}={text_of(text)}")
        return None


@dataclass(frozen=True)
class General:
    """The general reading, and which modules are the user's own."""

    #: The top-level package of the task, which may be an installed package, too.
    own_package: str = ""
    #: Whether the names of the user's own classes count.
    by_own_names: bool = False

    def is_own(self, module: str) -> bool:
        """Whether a module is one of the user's own."""
        return not _is_installed(module) or module.partition(".")[0] == self.own_package


def _name(cls: type) -> str:
    # A metaclass may have a __name__ of its own.
    return dotted_name(cls).rpartition(".")[2]


def _module(cls: type) -> str:
    return dotted_name(cls).rpartition(".")[0]


def _raiser(exc: BaseException) -> Iterator[str]:
    """The module that raised it, if it was raised: a library may raise a class of Python."""
    trace: TracebackType | None = _TRACEBACK(exc)
    while trace is not None:
        if trace.tb_next is None:
            yield text_of(trace.tb_frame.f_globals.get("__name__")) or ""
        trace = trace.tb_next


def _is_installed(module: str) -> bool:
    # A class may name the package that offers it; and a package such as google has no file.
    files = (read(sys.modules.get(name), "__file__") for name in (module, module.partition(".")[0]))
    return any(_INSTALLED.search(text_of(file) or "") for file in files)


def _first(*asked: Callable[[], Finding | None]) -> Finding | None:
    return next((found for ask in asked if (found := ask()) is not None), None)


def _statements(exc: BaseException) -> Iterator[_Statement]:
    found = {**_computed(exc), **own_values(exc, _VALUES)}
    args = enumerate(arguments(exc)[:_ARGUMENTS])
    found |= {f"args[{at}]": value for at, value in args}
    for name, value in found.items():
        words = _joined(name)
        yield _Statement(words, value, name)
        if issubclass(type(value), dict) and (words in _DICT or name.startswith("args")):
            yield from _in_dict(value, name)
        elif words in _INSIDE or "response" in words or name.startswith("args"):
            is_answer = words in _RESPONSE or words not in _INSIDE
            yield from _in_object(value, name, _IN_RESPONSE if is_answer else ())


def _computed(exc: BaseException) -> dict[str, object]:
    """The values of its properties, slots and methods with the names of such statements."""
    found, cls = dict[str, object](), type(exc)
    for name in sorted(_COMPUTED & shape_of(cls).names):
        value = class_value(cls, name)
        if type(value) is FunctionType:
            code = value.__code__
            if code.co_argcount == 1 and not code.co_flags & _RUNS_LATER:
                found[f"{name}()"] = call(exc, name)
        elif not is_default(exc, name):
            found[name] = read(exc, name)
    return found


def _in_dict(value: object, source: str, depth: int = 2) -> Iterator[_Statement]:
    try:
        items = [*islice(dict.items(cast("dict[object, object]", value)), _VALUES)]
    except RuntimeError:  # another thread changes it
        return
    for key, inner in items:
        name = text_of(key)
        if name is None:
            continue
        yield _Statement(_joined(name), inner, f"{source}[{name!r}]")
        if depth > 1 and issubclass(type(inner), dict) and _joined(name) in _DICT:
            yield from _in_dict(inner, f"{source}[{name!r}]", depth - 1)


def _in_object(value: object, source: str, names: tuple[str, ...]) -> Iterator[_Statement]:
    own = read(value, "__dict__")
    listed = [*own] if type(own) is dict else []
    named = (name for name in listed if type(name) is str and _joined(name) in _STATUS)
    for name in chain(names, named):
        inner = read(value, name)
        if type(inner) is int:
            yield _Statement("status code", inner, f"{source}.{name}")


def _plain(value: object) -> str:
    """A number, a flag or a word as text; empty for other values."""
    if issubclass(type(value), Enum):
        value = read(value, "name")
    found = value if type(value) is bool else number(value)
    return text_of(value) or "" if found is None else str(found)


def _joined(name: str) -> str:
    return " ".join(words_of(name)).removeprefix("get ").replace("getcode", "code")
