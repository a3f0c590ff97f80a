"""Options that several commands share, and what their values mean."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

import click

from celery_dlq.cli.exits import one_line
from celery_dlq.states import Reason, State
from celery_dlq.store.base import Filter
from celery_dlq.view import times

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Value = TypeVar("_Value")

#: What ``--format`` takes.
FORMATS = ("table", "json", "jsonl", "csv")

#: The filters that groups have, which are counted and not looked up letter by letter.
GROUP_FILTERS = ("task", "exception", "group", "since", "until")

#: The states that a redrive and a discard can take letters from; ``REDRIVEN`` only when named.
TAKEABLE = (State.DEAD, State.REDRIVEN)

_TEXTS = ("task", "exception", "queue", "group", "worker", "search")


def read_with(
    read: Callable[[str], _Value],
) -> Callable[[click.Context, click.Parameter, str | None], _Value | None]:
    """An option callback that reads the value with ``read``, whose ``ValueError`` is a usage error."""

    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> _Value | None:
        try:
            return None if value is None else read(value)
        except ValueError as error:
            raise click.BadParameter(one_line(str(error)), ctx, param) from error

    return callback


def filters(
    *, only: Sequence[str] = (), states: Sequence[State] = tuple(State)
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the filter options. It is called with ``wanted``, the filter made of them.

    :param only: names of the options, all when empty.
    :param states: what ``--state`` takes; with none there is no such option.
    """
    options = {
        name: option
        for name, option in _filter_options(states).items()
        if (name in only or not only) and (states or name != "states")
    }

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def filtered(*args: Any, **kwargs: Any) -> Any:
            given = {name: kwargs.pop(name) for name in options}
            return command(*args, wanted=as_filter(given), **kwargs)

        for option in reversed(options.values()):
            filtered = option(filtered)
        return filtered

    return decorate


def as_filter(given: Mapping[str, Any]) -> Filter:
    """The filter of option values.

    :raises click.UsageError: a text is empty. Taken for no restriction, an unset shell variable
        would widen a redrive to every letter.
    :raises FilterError: the bounds of time contradict each other.
    """
    for name in _TEXTS:
        if given.get(name) is not None and not given[name].strip():
            raise click.UsageError(f"--{name} is empty; give it a value, or leave it out.")
    reason = given.get("reason")
    return Filter(
        **{
            **given,
            "reason": Reason(reason) if reason else None,
            "states": frozenset(map(State, given.get("states", ()))),
        }
    )


def _filter_options(states: Sequence[State]) -> dict[str, Callable[[Any], Any]]:
    text = functools.partial(click.option, metavar="TEXT")
    default = "those that are open" if State.CLAIMED in states else State.DEAD.value
    moment = functools.partial(
        click.option,
        metavar="TIME",
        callback=read_with(lambda value: times.parse_moment(value, times.utc_now())),
    )
    return {
        "task": text("--task", help="Task name, whole or its last part."),
        "exception": text("--exception", help="Exception type, dotted or its last part."),
        "reason": click.option("--reason", type=choice(Reason), help="Why it died."),
        "queue": text("--queue", help="Queue the message came from."),
        "states": click.option(
            "--state", "states", type=choice(states), multiple=True,
            help=f"May be given several times. Default: {default}.",
        ),
        "group": text("--group", help="Fingerprint, or its beginning; `groups` shows them."),
        "since": moment("--since", help="Failed last at or after: 90m, 2h, 3d, 1w ago, or ISO 8601."),
        "until": moment("--until", help="Failed last before; as --since."),
        "worker": text("--worker", help="Worker that ran it last, or the name's beginning."),
        "search": text(
            "--search", help="Text in message, exception, task or arguments, in any case."
        ),
    }  # fmt: skip


def choice(values: Iterable[Enum]) -> click.Choice[str]:
    """What takes one of the words that ``values`` stand for."""
    return click.Choice([value.value for value in values], case_sensitive=False)


def format_option(command: _Command) -> _Command:
    """Give a command ``--format``; it is called with ``form``."""
    return click.option(
        "--format", "form", type=click.Choice(FORMATS), default="table", show_default=True,
        help="Tables are drawn on a terminal, and plain text in a pipe.",
    )(command)  # fmt: skip


def operation_option(command: _Command) -> _Command:
    """Give a command ``--operation``; it is called with ``operation_id``."""
    return click.option(
        "--operation", "operation_id", metavar="ID",
        help="Only letters that this operation was about.",
    )(command)  # fmt: skip


def limit_option(text: str, default: int | None = None) -> Callable[[_Command], _Command]:
    """Give a command ``--limit``."""
    return click.option(
        "--limit", type=click.IntRange(min=1), metavar="N", default=default,
        show_default=default is not None, help=text,
    )  # fmt: skip


def selection_options(command: _Command) -> _Command:
    """Give a command ids, ``--all`` and ``--yes``; it is called with ``ids``, ``everything``, ``yes``."""
    yes = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
    everything = click.option(
        "--all", "everything", is_flag=True, help="Every letter, instead of ids or filters."
    )
    ids = click.argument("ids", nargs=-1, metavar="[ID]...")
    return ids(everything(yes(command)))
