"""The facts about a thing, such as a letter. One list of them makes its record for programs, its CSV, and the
named values of its screens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum
from typing import Any

from celery_dlq.model.operation import Orders
from celery_dlq.store.base import Filter
from celery_dlq.view.text import Fact
from celery_dlq.view.times import iso


@dataclass(frozen=True)
class Field:
    """A fact about a thing: a value with its names."""

    #: The name for programs; empty if they find the value elsewhere.
    name: str
    #: The title for people; empty if they find the value elsewhere.
    title: str = ""
    #: The part of a screen to which it belongs.
    part: str = ""
    #: Reads the value; None for the attribute :attr:`name`.
    read: Callable[[Any], Any] | None = None
    #: Makes the value for people, if it is another one.
    said: Callable[[Any], Any] | None = None


def record_of(listed: Iterable[Field], one: Any, **given: Any) -> dict[str, Any]:
    """The facts about ``one`` as plain data.

    :param given: values that ``one`` does not have, by their names for programs.
    """
    return {field.name: plain(_value(field, one, given)) for field in listed if field.name}


def facts_in(listed: Iterable[Field], one: Any, parts: Collection[str], **given: Any) -> list[Fact]:
    """The facts about ``one`` in these parts of a screen, for people; in all parts, if ``parts`` is empty."""
    return [
        (field.title, _for_people(field.said(one) if field.said else _value(field, one, given)))
        for field in listed
        if field.title and (field.part in parts or not parts)
    ]


def _value(field: Field, one: Any, given: Mapping[str, Any]) -> Any:
    if field.name in given:
        return given[field.name]
    return field.read(one) if field.read else getattr(one, field.name)


def _for_people(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return value.value if isinstance(value, Enum) else value


def as_record(one: Any, names: Sequence[str] = (), **given: Any) -> dict[str, Any]:
    """The fields of the dataclass ``one`` as plain data.

    :param names: only these fields, in this order; empty means all.
    :param given: values that take the place of a field with this name, or follow the fields.
    """
    shown = [*(names or [item.name for item in fields(one)]), *given]
    return {name: plain(given[name] if name in given else getattr(one, name)) for name in shown}


def plain(value: Any) -> Any:
    """``value`` as JSON has it: a time in ISO 8601, a member of an enumeration as its value. The items of a
    list and the values of a table stay as they are."""
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (Filter, Orders)):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {plain(name): item for name, item in value.items()}
    return list(value) if isinstance(value, tuple) else value
