"""The signature of a task, and which of its parameters the arguments of a message fill."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery_dlq.base.redact import REDACTED, Redactor, clip, safe_repr
from celery_dlq.redrive.letter.checks import Call, filled_by
from celery_dlq.view.text import first_line

#: Parameters that are shown, and characters of a default value, of an annotation and of a docstring.
_PARAMETERS, _VALUE, _DOC = 50, 80, 300

#: Arguments of one parameter that are named.
_NAMED = 5

_STARS: Mapping[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of a task."""

    #: With its stars, if it takes the remaining arguments.
    name: str
    annotation: str
    #: Its default value; None if it has none.
    default: str | None
    #: The arguments that it gets: ``args[0]``, ``kwargs.currency``.
    filled: tuple[str, ...]

    @property
    def is_missing(self) -> bool:
        """Whether the task cannot be called because this parameter gets no argument."""
        return not self.filled and self.default is None and not self.name.startswith("*")


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The signature of a task with the arguments of a message."""

    #: The first line of its docstring.
    doc: str
    #: None if they are unknown.
    parameters: tuple[Parameter, ...] | None
    #: Arguments that no parameter takes.
    unexpected: tuple[str, ...]
    #: Why the task cannot be called with these arguments; empty if it can.
    why_not: str


def signature_of(
    task: Any, args: Sequence[Any], kwargs: Mapping[str, Any], redactor: Redactor
) -> Signature:
    """The signature of ``task`` with these arguments.

    :param task: as the app has registered it.
    """
    call = Call(task)
    # A task without a docstring inherits that of Celery's class.
    doc = getattr(task.run, "__doc__", None) or vars(type(task)).get("__doc__")
    known = None if call.signature is None else list(call.signature.parameters.values())
    filled, unexpected = filled_by(known or [], len(args), kwargs)
    return Signature(
        doc=clip(first_line(doc if isinstance(doc, str) else ""), _DOC),
        parameters=None
        if known is None
        else tuple(_parameter(one, filled, redactor) for one in known[:_PARAMETERS]),
        unexpected=() if known is None else _some(unexpected),
        why_not=_why_not(call, args, kwargs),
    )


def _why_not(call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    try:
        call.bind(args, kwargs)
    except TypeError as error:
        return str(error)
    return ""


def _parameter(
    one: inspect.Parameter, filled: Mapping[str, Sequence[str]], redactor: Redactor
) -> Parameter:
    annotation, default = one.annotation, None
    # Annotations are texts in modules with postponed evaluation.
    if not isinstance(annotation, str):
        annotation = "" if annotation is one.empty else inspect.formatannotation(annotation)
    if one.default is not one.empty:
        is_secret = one.default is not None and redactor.is_sensitive(one.name)
        default = REDACTED if is_secret else clip(redactor.text(safe_repr(one.default)), _VALUE)
    return Parameter(
        name=f"{_STARS.get(one.kind, '')}{one.name}",
        annotation=clip(annotation, _VALUE),
        default=default,
        filled=_some(filled.get(one.name, ())),
    )


def _some(names: Sequence[str]) -> tuple[str, ...]:
    more = (f"and {len(names) - _NAMED:,} more",) if len(names) > _NAMED else ()
    return (*names[:_NAMED], *more)
