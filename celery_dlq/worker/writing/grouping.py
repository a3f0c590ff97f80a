"""Groups failures by the user's recipe or the built-in one. A recipe that fails must not cost a letter, so it
is called under guard."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from celery_dlq.classify.guarded import PATIENCE_S, begin, bounded
from celery_dlq.model.fingerprint import (
    FingerprintInput,
    Grounds,
    fingerprint,
    fixed_words,
    own_fingerprint,
    words_of,
)
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.terms import leaves
from celery_dlq.redact import Redactor, safe_message

logger = logging.getLogger("celery_dlq")


class Grouped(NamedTuple):
    """The result of a recipe for one failure."""

    #: Empty for the built-in one.
    fingerprint: str = ""
    #: Why the recipe has no result, as words after its name; empty if it has one.
    problem: str = ""


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
                self.recipe, problem,
            )  # fmt: skip
        return after

    def regrouped(self, letter: DeadLetter) -> tuple[DeadLetter, str]:
        """``letter`` with its fingerprint, and why the user's recipe has no result, as words after its name;
        empty if it has one. Raises nothing."""
        grounds = letter.grounds or Grounds()
        failure = self._input(letter, grounds)
        found = self._ask(failure)
        recipe = self.recipe if found.fingerprint else ""
        if grounds.recipe != recipe:
            grounds = replace(grounds, recipe=recipe)
        name = found.fingerprint or fingerprint(failure)
        return letter.with_(fingerprint=name, grounds=grounds), found.problem

    def _input(self, letter: DeadLetter, grounds: Grounds) -> FingerprintInput:
        message, words = letter.message, ""
        if grounds.needs_message or self._recipe is not None:
            # Anyone who sees a fingerprint could try out values; and the store keeps the message without
            # secrets.
            message = self._redactor.text(message)
        if grounds.needs_message:
            values = [value for _path, value in leaves(letter.args, letter.kwargs)]
            words = fixed_words(message, words_of(values))
        return FingerprintInput.of(letter.task, letter.exception_type, message, grounds, words)

    def _ask(self, failure: FingerprintInput) -> Grouped:
        if self._recipe is None:
            return Grouped()
        begin()
        found = bounded(partial(_answer, self._recipe, failure), self._recipe, "dlq_fingerprint")
        return found or Grouped(problem=f"took longer than {PATIENCE_S} s")


def _answer(recipe: Callable[..., Any], failure: FingerprintInput) -> Grouped:
    try:
        return _grouped(recipe(failure))
    except BaseException as error:  # noqa: BLE001 - foreign code may raise anything, SystemExit included
        return Grouped(problem=f"raised {type(error).__name__}: {safe_message(error)}")


def _grouped(result: object) -> Grouped:
    if result is None:
        return Grouped()
    parts = [result] if isinstance(result, str) else result
    if not isinstance(parts, (list, tuple)) or not all(isinstance(one, str) for one in parts):
        kind = type(result).__name__
        return Grouped(problem=f"returned {kind}, not a string, a list of strings, or None")
    if not any(parts):
        return Grouped(problem="returned no text")
    return Grouped(own_fingerprint(parts))
