"""Groups failures: reads from an exception the facts by which its failure is grouped, and makes the
fingerprint by the user's recipe or the built-in one. A recipe that fails must not cost a letter, so it is
called under guard."""

from __future__ import annotations

import dis
import logging
import os
import re
import site
import sys
import sysconfig
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, NamedTuple, TypeAlias

from celery_dlq.base.redact import Redactor, safe_message, safe_text
from celery_dlq.classify import Decision, decide, is_a, is_built_in, subject
from celery_dlq.classify.chain import Budget, Link, members, walk, wrapped
from celery_dlq.classify.evidence import bases, dotted_name, may_have, read, shown_name
from celery_dlq.classify.guarded import PATIENCE_S, begin, bounded
from celery_dlq.model.fingerprint import (
    FRAME_LIMIT,
    FingerprintInput,
    Grounds,
    fingerprint,
    fixed_words,
    own_fingerprint,
    within,
    words_of,
)
from celery_dlq.model.letter import DeadLetter, Failure
from celery_dlq.model.terms import leaves
from celery_dlq.worker.secrecy import hidden

#: The most frames of libraries that stand in for missing own frames, the most causes, and the innermost own
#: frames whose lines count: a helper that raises, and the line that calls it.
LIBRARY_FRAMES, _CAUSES, _LINES = 3, 4, 2

#: Characters of the line's names. Longer ones are cut.
_LINE_LIMIT = 200

# The codes in a decision's evidence: "status=404 from response.status_code".
_CODE = re.compile(
    r"\b((?:status|sqlstate|errno|h_errno|code|number|error|error_name|grpc_status_code|smtp_code"
    r"|reply_code|label)=[^\s,;]{1,80})"
)

# The attributes in which exceptions carry a code, and the form that it has as a word.
_CODES = ("sqlstate", "pgcode", "sqlite_errorname", "errno", "error_code", "code", "verify_code")
_CODE_NAMES = frozenset(_CODES)
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,39}")
_LARGEST_CODE = 10**9

#: This package, wherever it is installed. Another folder of the same name may hold a user's project.
_PACKAGE = str(Path(__file__).parents[1])

#: Directories of code that is not the user's: Python, installed packages, and this package.
_FOREIGN_PATHS = tuple(
    os.path.join(directory, "")
    for directory in {
        *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
        _PACKAGE,
    }
)


class _Frame(NamedTuple):
    path: str
    #: As ``module:function``.
    name: str
    tb: TracebackType


def grounds_of(exc: BaseException, decision: Decision | None = None) -> Grounds:
    """The facts about ``exc``, or about the exception that it wraps. Raises nothing that ``exc`` does.

    :param decision: a decision about ``exc``. If the built-in rules made it, they are not asked again.
    """
    about = subject(exc)
    # An exception inside a wrapper may never have been raised.
    frames = list(_frames(about.__traceback__)) or list(_frames(exc.__traceback__))
    own = _distinct([frame for frame in frames if is_app(frame.path)])
    names = [frame.name for frame in own or _distinct(frames)[-LIBRARY_FRAMES:]]
    lines = tuple(
        safe_text(_names_in_line(frame.tb.tb_frame.f_code, frame.tb.tb_lineno))
        for frame in own[-_LINES:]
    )
    if is_a(about, RecursionError):  # where it ends is chance
        names, lines = sorted(names), ()
    behind = _behind(about)
    if decision is None or about is not exc or not is_built_in(decision.rule):
        decision = decide(about)
    evidence, types = _evidence(about, behind, decision), _causes(about, behind)
    is_told = bool(evidence or types) or bool(own and not _is_catch_all(about, frames[-1]))
    return Grounds(
        frames=tuple(names[-FRAME_LIMIT:]),
        is_own=bool(own),
        lines=lines,
        evidence=evidence,
        causes=types,
        needs_message=not is_told,
    )


def _frames(tb: TracebackType | None) -> Iterator[_Frame]:
    while tb is not None:
        frame = tb.tb_frame
        name = f"{frame.f_globals.get('__name__')}:{frame.f_code.co_name}"
        yield _Frame(frame.f_code.co_filename, safe_text(name), tb)
        tb = tb.tb_next


def _distinct(frames: list[_Frame]) -> list[_Frame]:
    """The last of the frames with each name: how deep a recursion was says nothing about the cause."""
    last = {frame.name: frame for frame in frames}
    return [last[name] for name in dict.fromkeys(frame.name for frame in frames)]


@lru_cache(maxsize=4_096)
def is_app(path: str) -> bool:
    """Whether a file on this machine is the user's own."""
    return not path.startswith(("<", *_FOREIGN_PATHS))


class _Contents(NamedTuple):
    """The names that a line of code uses, in their order, and its literals."""

    names: list[str]
    literals: list[str]

    @property
    def text(self) -> str:
        """The names, as one text."""
        return " ".join(self.names)


@lru_cache(maxsize=4_096)
def _names_in_line(code: CodeType, line: int) -> str:
    """The names in a line, without its literals. Adds a hash of the literals if another line of the function
    has the same names, and a counter if these are equal, too."""
    lines = _lines_of(code)
    mine = lines.get(line, _Contents([], []))
    alike = [number for number, one in sorted(lines.items()) if one.text == mine.text]
    text = mine.text[:_LINE_LIMIT]
    if len(alike) <= 1:
        return text
    literals = "\x1f".join(mine.literals)
    twins = [number for number in alike if "\x1f".join(lines[number].literals) == literals]
    mark = f"{zlib.crc32(literals.encode('utf-8', 'surrogatepass')):08x}"
    return f"{text} {mark}" if len(twins) <= 1 else f"{text} {mark} {twins.index(line) + 1}"


def _lines_of(code: CodeType) -> dict[int, _Contents]:
    """The contents of each line, from the compiled code: the source may be missing, or newer."""
    spans = [(start, end, number) for start, end, number in code.co_lines() if number is not None]
    lines: dict[int, _Contents] = {}
    place = 0
    for item in dis.get_instructions(code):
        while place < len(spans) and spans[place][1] <= item.offset:
            place += 1
        if place == len(spans) or item.offset < spans[place][0]:
            continue
        found = lines.setdefault(spans[place][2], _Contents([], []))
        if item.opname == "RAISE_VARARGS":
            found.names.insert(0, "raise")
        elif item.opcode in _NAMING:
            found.names.extend([item.argval] if isinstance(item.argval, str) else item.argval)
        elif item.opcode in dis.hasconst and isinstance(item.argval, _LITERALS):
            found.literals.append(repr(item.argval))
    return lines


# Without sets, which have another order in each process.
_LITERALS = (str, bytes, int, float)
_NAMING = frozenset([*dis.hasname, *dis.haslocal, *dis.hasfree])


def _behind(exc: BaseException) -> list[BaseException]:
    """The exceptions that ``exc`` was raised from, nearest first."""
    if not wrapped(exc):
        return []
    return [link.exc for link in walk(Link(exc), wrapped, Budget(_CAUSES + 1))][1:]


def _evidence(
    exc: BaseException, behind: list[BaseException], decision: Decision
) -> tuple[str, ...]:
    """The codes by which the built-in rules decide about ``exc``, whatever the user's rules say; otherwise
    those of the nearest exception that has one in an attribute."""
    found = _CODE.findall(safe_text(decision.evidence))
    found = found or next(filter(None, map(_attributes, (exc, *behind))), [])
    return tuple(dict.fromkeys(found))


def _attributes(exc: BaseException) -> list[str]:
    if not may_have(exc, _CODE_NAMES):
        return []
    values = ((name, read(exc, name)) for name in _CODES)
    return [f"{name}={value}" for name, value in values if _is_code(value)]


def _is_code(value: object) -> bool:
    # Not isinstance(): a subclass may have a __format__ of its own.
    if type(value) is str:
        return _WORD.fullmatch(value) is not None
    return type(value) is int and abs(value) <= _LARGEST_CODE


def _causes(exc: BaseException, behind: list[BaseException]) -> tuple[str, ...]:
    """The types of the exceptions that ``exc`` was raised from. The types of a group's members are sorted,
    because the members have no order."""
    inner = members(exc)
    if inner:
        return tuple(sorted({shown_name(type(one)) for one in inner})[:_CAUSES])
    return tuple(dict.fromkeys(shown_name(type(one)) for one in behind))


def _is_catch_all(exc: BaseException, innermost: _Frame) -> bool:
    """Whether ``exc`` came out of a library that raises one type for everything: one that derives from
    ``Exception`` itself."""
    if is_app(innermost.path):
        return False
    package = dotted_name(type(exc)).partition(".")[0]
    is_python = package == "builtins" or package in sys.stdlib_module_names
    return not is_python and bases(type(exc))[1:2] == (Exception,)


logger: logging.Logger = logging.getLogger("celery_dlq")


#: The fingerprint of a recipe, empty for the built-in one; and why the recipe has no result, as words after
#: its name, empty if it has one.
_Result: TypeAlias = tuple[str, str]


class Grouping:
    """The recipe for the groups of failures.

    :param recipe: the user's function; None for the built-in recipe.
    """

    def __init__(self, redactor: Redactor, recipe: Callable[..., Any] | None = None) -> None:
        self._redactor, self._recipe = redactor, recipe
        self._has_reported = False

    @property
    def recipe(self) -> str:
        """The name of the user's recipe; empty for the built-in one."""
        if self._recipe is None:
            return ""
        kind = type(self._recipe)
        module = getattr(self._recipe, "__module__", kind.__module__)
        return f"{module}.{getattr(self._recipe, '__qualname__', kind.__qualname__)}"

    def grouped(self, letter: DeadLetter) -> DeadLetter:
        """``letter`` with its fingerprint. Raises nothing; the first problem of a recipe is logged."""
        after, problem = self.regrouped(letter)
        if problem and not self._has_reported:
            self._has_reported = True
            logger.error(
                "dlq_fingerprint: %s %s. Such failures get the built-in fingerprint until it is corrected; "
                "this is logged once.",
                self.recipe, hidden(problem),
            )  # fmt: skip
        return after

    def regrouped(self, letter: DeadLetter) -> tuple[DeadLetter, str]:
        """``letter`` with its fingerprint, and why the user's recipe has no result, as words after its name;
        empty if it has one. Raises nothing."""
        grounds = letter.grounds or Grounds()
        failure = self._input(letter.task, letter, grounds, letter.args, letter.kwargs)
        own, problem = self._ask(failure)
        recipe = self.recipe if own else ""
        if grounds.recipe != recipe:
            grounds = replace(grounds, recipe=recipe)
        name = within(letter.namespace, own or fingerprint(failure))
        return letter.with_(fingerprint=name, grounds=grounds), problem

    def fingerprint_of(self, task: str, failed: Failure, args: Any, kwargs: Any) -> str:
        """The fingerprint of the letter of ``failed``, which is not made yet."""
        named, shown = self._redactor.named(task, args), self._redactor.display
        failure = self._input(task, failed, failed.grounds, shown(named), shown(kwargs))
        return self._ask(failure)[0] or fingerprint(failure)

    def _input(
        self, task: str, failed: DeadLetter | Failure, grounds: Grounds, args: Any, kwargs: Any
    ) -> FingerprintInput:
        message, words = failed.message, ""
        if grounds.needs_message or self._recipe is not None:
            # Anyone who sees a fingerprint could try out values; and the store keeps the message without
            # secrets.
            message = self._redactor.text(message)
        if grounds.needs_message:
            values = [value for _path, value in leaves(args, kwargs)]
            words = fixed_words(message, words_of(values))
        return FingerprintInput.of(task, failed.exception_type, message, grounds, words)

    def _ask(self, failure: FingerprintInput) -> _Result:
        if self._recipe is None:
            return "", ""
        begin()
        found = bounded(partial(_answer, self._recipe, failure), self._recipe, "dlq_fingerprint")
        return found or ("", f"took longer than {PATIENCE_S} s")


def _answer(recipe: Callable[..., Any], failure: FingerprintInput) -> _Result:
    try:
        return _grouped(recipe(failure))
    except BaseException as error:  # noqa: BLE001 - foreign code may raise anything, SystemExit included
        return "", f"raised {type(error).__name__}: {safe_message(error)}"


def _grouped(result: object) -> _Result:
    if result is None:
        return "", ""
    parts = [result] if isinstance(result, str) else result
    if not isinstance(parts, (list, tuple)) or not all(isinstance(one, str) for one in parts):
        kind = type(result).__name__
        return "", f"returned {kind}, not a string, a list of strings, or None"
    if not any(parts):
        return "", "returned no text"
    return own_fingerprint(parts), ""
