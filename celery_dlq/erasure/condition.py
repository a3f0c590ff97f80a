"""Conditions on the arguments of a message, such as ``args.user_id=7``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from celery_dlq.errors import RepairError
from celery_dlq.model.assignment import Assignment, parse_assignment
from celery_dlq.redrive.contents import is_same
from celery_dlq.settings.allowed import is_number

#: Names of the positional parameters of a task, in order; None if the task is unknown.
Parameters = Sequence[str] | None


class UnknownParameters(Exception):
    """The argument may be a positional one, whose names are unknown."""


@dataclass(frozen=True)
class Condition:
    """A value that a message has at some place.

    ``args.user_id`` is the argument with that name, however it was passed; the other places are those of an
    assignment. A list at the place has the value if one of its items is the value.
    """

    wanted: Assignment

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read a condition.

        :raises RepairError: it is not one.
        """
        wanted = parse_assignment(text, "--where")
        if not wanted.written.strip():
            raise RepairError(f"--where {text}: write a value after the equals sign")
        return cls(wanted)

    @property
    def place(self) -> str:
        """The place of the value."""
        return self.wanted.place

    @property
    def text(self) -> str:
        """The value as a text."""
        value = self.wanted.value
        return value if isinstance(value, str) else self.wanted.written

    def holds(self, parts: Mapping[str, Any], parameters: Parameters) -> bool:
        """Whether a message has the value.

        :param parts: args, kwargs and headers of the message.
        :param parameters: of the message's task.
        :raises UnknownParameters: this depends on parameters that are unknown.
        """
        try:
            found = self._resolved(parts, parameters).find(parts)
        except LookupError:
            return False
        return self._is_value(found)

    def _resolved(self, parts: Mapping[str, Any], parameters: Parameters) -> Assignment:
        """The place in this message."""
        name, *inner = self.wanted.steps
        if self.wanted.root != "args" or isinstance(name, int) or name.isdecimal():
            return self.wanted
        if name in parts["kwargs"] or not parts["args"]:
            return replace(self.wanted, root="kwargs")
        if parameters is None:
            raise UnknownParameters
        if name not in parameters:
            raise LookupError(name)
        return replace(self.wanted, steps=(parameters.index(name), *inner))

    def _is_value(self, found: Any) -> bool:
        # Not by recursion: a message may be nested as deep as its sender likes.
        left = [found]
        while left:
            one = left.pop()
            if self._is_one(one):
                return True
            if isinstance(one, (list, tuple, set, frozenset)):
                left += one
        return False

    def _is_one(self, found: Any) -> bool:
        if is_number(found) and is_number(self.wanted.value):
            return bool(found == self.wanted.value)
        if isinstance(found, (list, tuple, set, frozenset)):
            return is_same(found, self.wanted.value)
        return is_same(found, self.wanted.value) or _text_of(found) == self.text


def _text_of(value: Any) -> str | None:
    """``value`` as a text; None if it has none. A message may hold any object."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the object's own method
        return None
