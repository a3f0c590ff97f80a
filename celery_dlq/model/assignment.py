"""Assignments such as ``order.lines[2].sku="A-1"``: a place in a message, and a value for it. And the
parameters of a task, by whose names people know the arguments of a message."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from celery_dlq.errors import RepairError

#: The parts of a message that an assignment can change.
ROOTS = ("args", "kwargs", "headers")

#: The root of an assignment that names a parameter of the task instead of a part of the message.
PARAMETER = ""

_PARAMETER = re.compile(r"[^\W\d]\w*(?=[.\[=])")

_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]="']+)            # .name
      | \[(?P<index>\d+)\]                  # [0]
      | \[(?P<key>"(?:[^"\\]|\\.)*")\]      # ["any key"]
    """,
    re.VERBOSE,
)

Step = str | int

_STARS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def signature_for_messages(task: Any) -> inspect.Signature:
    """The parameters that the arguments of a message of ``task`` fill.

    :raises TypeError: they are unknown, as for a function that is written in C.
    :raises ValueError: they are unknown.
    """
    body, header = inspect.signature(task.run), getattr(task, "__header__", None)
    if header is None:
        return body
    # A base class that gives run() further arguments, or takes some away, says so by its __header__, by which
    # Celery checks the arguments of delay(). The wrapped function would be that of run().
    checked = inspect.signature(header, follow_wrapped=False)
    parameters = checked.parameters.values()
    is_of_decorator = parameters and all(one.kind in _STARS for one in parameters)
    if is_of_decorator or [*checked.parameters] == [*body.parameters]:
        return body
    return checked.replace(parameters=[_as_written(one, body) for one in parameters])


def _as_written(one: inspect.Parameter, body: inspect.Signature) -> inspect.Parameter:
    # Celery's headers have neither annotations nor the values of defaults.
    own = body.parameters.get(one.name, one)
    has_both = one.default is not one.empty and own.default is not one.empty
    return one.replace(annotation=own.annotation, default=own.default if has_both else one.default)


@dataclass(frozen=True)
class Assignment:
    """A value, and a place in a message."""

    #: As it was written.
    text: str
    root: str
    steps: tuple[Step, ...]
    value: Any
    #: The value as it was written.
    written: str

    @property
    def place(self) -> str:
        """The place of the value, as text."""
        root, *steps = self.steps if self.root == PARAMETER else (self.root, *self.steps)
        return functools.reduce(_joined, steps, str(root))

    def placed(self, parameters: Sequence[str] | None, parts: Mapping[str, Any]) -> Assignment:
        """The assignment, with the argument of ``parts`` in place of a parameter.

        :param parameters: the names of the task's positional parameters; None if they are unknown.
        :raises RepairError: it is unknown which argument is meant.
        """
        if self.root != PARAMETER:
            return self
        name, *others = self.steps
        known = list(parameters or ())
        if name in known[: len(parts["args"])]:
            return replace(self, root="args", steps=(known.index(str(name)), *others))
        if name in known or name in parts["kwargs"]:
            return replace(self, root="kwargs")
        why = "has no parameter" if known else "is not in this app, which alone knows the place of"
        raise RepairError(
            f"its task {why} {name}; write --set kwargs.{self.text}, or args.N for a place"
        )

    def find(self, parts: Mapping[str, Any]) -> Any:
        """The value that is in its place in ``parts``: args, kwargs and headers.

        :raises LookupError: the message has no such place.
        """
        try:
            return functools.reduce(
                lambda place, step: place[_key(place, step)], self.steps, parts[self.root]
            )
        except TypeError as error:
            raise LookupError(self.place) from error

    def apply(self, parts: dict[str, Any]) -> None:
        """Put the value in its place in ``parts``: args, kwargs and headers.

        :raises RepairError: the message has no such place.
        """
        place, so_far = parts[self.root], self.root
        for step in self.steps[:-1]:
            place = self._within(place, step, so_far)
            so_far = _joined(so_far, step)
        self._put(place, self.steps[-1], so_far)

    def _within(self, place: Any, step: Step, so_far: str) -> Any:
        try:
            return place[_key(place, step)]
        except (LookupError, TypeError):
            raise self._no_place(_joined(so_far, step)) from None

    def _put(self, place: Any, step: Step, so_far: str) -> None:
        key = _key(place, step)
        fits = isinstance(place, list) and isinstance(key, int) and key < len(place)
        if not fits and not (isinstance(place, dict) and isinstance(step, str)):
            raise self._no_place(_joined(so_far, step))
        place[key] = self.value

    def _no_place(self, place: str) -> RepairError:
        return RepairError(f"it has no {place} that --set {self.text} could change")


def parse_assignment(text: str, option: str = "--set", *, by_name: bool = True) -> Assignment:
    """Parse ``text`` as an assignment. The value is read as JSON; if it is not JSON, it is the text itself.

    :param option: names it in errors.
    :param by_name: whether it may name a parameter of the task.
    :raises RepairError: it is not an assignment.
    """
    root = next((root for root in ROOTS if re.match(rf"{root}[.\[]", text)), None)
    named = _PARAMETER.match(text) if root is None and by_name else None
    if root is None and (named is None or named[0] in ROOTS):
        name = "a name of a parameter, or with " if by_name else ""
        raise RepairError(
            f"{option} {text}: begin with {name}{', '.join(ROOTS)}, as in kwargs.currency=USD"
        )
    steps, position = _steps(text, len(root or (named[0] if named else "")))
    if named:
        steps.insert(0, named[0])
    if not steps or text[position : position + 1] != "=":
        raise RepairError(
            f'{option} {text}: write it like kwargs.lines[2].sku=A-1 or kwargs["a.b"]=5'
        )
    written = text[position + 1 :]
    return Assignment(text, root or PARAMETER, tuple(steps), parse_value(written), written)


def parse_value(text: str) -> Any:
    """``text`` decoded as JSON; unchanged if it is not JSON."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return text


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _steps(text: str, position: int) -> tuple[list[Step], int]:
    """The steps from ``position`` on, and where they end."""
    steps: list[Step] = []
    while found := _STEP.match(text, position):
        try:
            steps.append(_step(found))
        except ValueError:  # a key that is not JSON, or an index with thousands of digits
            break
        position = found.end()
    return steps, position


def _step(found: re.Match[str]) -> Step:
    if found["index"] is not None:
        return int(found["index"])
    return str(json.loads(found["key"])) if found["key"] is not None else found["name"]


def _key(place: Any, step: Step) -> Step:
    # args.0 means the same as args[0].
    return int(step) if isinstance(place, (list, tuple)) and str(step).isdecimal() else step


def _joined(so_far: str, step: Step) -> str:
    return f"{so_far}[{step}]" if isinstance(step, int) else f"{so_far}.{step}"
