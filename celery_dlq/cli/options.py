"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar

import click

from celery_dlq.base.known import unknown_name
from celery_dlq.cli.exits import one_line
from celery_dlq.cli.session import Session
from celery_dlq.errors import CeleryDLQError
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.store.base import Argument, Filter
from celery_dlq.view import times

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Value = TypeVar("_Value")
_State = TypeVar("_State", bound=Enum)

#: Decorators that add an option each, by the names under which a command gets the values.
Options = dict[str, Callable[[Any], Any]]

#: Values of ``--format``.
FORMATS = ("table", "json", "jsonl", "csv")

#: The states from which letters can be redriven and discarded; ``REDRIVEN`` only on request.
TAKEABLE = (State.DEAD, State.REDRIVEN)

#: The largest number that an option accepts, so that sums of them fit into every column and parameter.
MOST = 1_000_000_000

#: The type of a text that may be empty because '' has a meaning.
MAYBE_EMPTY = click.UNPROCESSED


class Word(click.Choice[str]):
    """One of several words; upper and lower case are the same.

    :param what: the kind of word, with its article: ``a state``.
    :param hint: a sentence added to the error for an unknown word.
    """

    def __init__(self, what: str, words: Iterable[str], *, hint: str = "") -> None:
        super().__init__([*words], case_sensitive=False)
        self._what, self._hint = what, hint

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word that ``value`` spells."""
        with contextlib.suppress(click.BadParameter):
            return super().convert(value, param, ctx)
        said = unknown_name(self._what, str(value), self.choices)
        return self.fail(one_line(f"{said} {self._hint}"), param, ctx)


def whole_number() -> click.IntRange:
    """A whole number, at least one."""
    return click.IntRange(1, MOST)


def read_with(
    read: Callable[[str], _Value],
) -> Callable[[click.Context, click.Parameter, str | None], _Value | None]:
    """An option callback that reads the value with ``read``; a ``ValueError`` becomes a usage error."""

    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> _Value | None:
        try:
            return None if value is None else read(value)
        except ValueError as error:
            raise click.BadParameter(one_line(str(error)), ctx, param) from error

    return callback


def read_moment(
    read: Callable[[str, datetime], datetime],
) -> Callable[[click.Context, click.Parameter, str | None], datetime | None]:
    """An option callback that reads a moment; ``read`` is given the text and the current time. Spans such
    as ``2h`` are measured on the store's clock."""

    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
        if value is not None and times.is_span(value):
            with contextlib.suppress(CeleryDLQError):  # the command will report it
                Session(ctx.obj).store  # noqa: B018 - sets the clock
        return read_with(lambda text: read(text, times.utc_now()))(ctx, param, value)

    return callback


#: The filters of commands that choose letters coarsely.
MAIN_FILTERS = (
    "task", "exception", "reason", "states", "group", "route", "since", "until", "namespace",
)  # fmt: skip


def filters(
    *,
    only: Sequence[str] = (),
    states: Sequence[State] = tuple(State),
    default: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the filter options to a command. It is called with ``wanted``, the filter built from them.

    :param only: names of the options; empty means all.
    :param states: values of ``--state``; empty means that there is no such option.
    :param default: the letters that the command takes without ``--state``.
    """
    options = {
        name: option
        for name, option in (_main_filters(states, default) | _other_filters()).items()
        if (name in only or not only) and (states or name != "states")
    }
    return gathered(under("Which letters", options), "wanted", as_filter)


def under(heading: str, options: Options) -> Options:
    """``options``, which the help page of a command lists under ``heading``."""

    def headed(option: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def add(command: Any) -> Any:
            command = option(command)
            command.__click_params__[-1].heading = heading
            return command

        return add

    return {name: headed(option) for name, option in options.items()}


def gathered(
    options: Options, name: str, make: Callable[[Mapping[str, Any]], Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``options`` to a command. It is called with ``name``, which ``make`` makes of their values."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def called(*args: Any, **kwargs: Any) -> Any:
            given = {option: kwargs.pop(option) for option in options}
            return command(*args, **kwargs, **{name: make(given)})

        for option in reversed(options.values()):
            called = option(called)
        return called

    return decorate


def as_filter(given: Mapping[str, Any]) -> Filter:
    """The filter for these option values.

    :raises FilterError: the time bounds contradict each other.
    """
    return Filter(**given)


_text = functools.partial(click.option, metavar="TEXT")


def _main_filters(states: Sequence[State], default: str) -> Options:
    usual = "open letters" if State.CLAIMED in states else f"{State.DEAD.value} letters"
    default = default or usual
    hint = f"Without --state, the command takes {default}."
    return {
        "task": _text(
            "--task", help="Task name, in full or its last part."
        ),
        "exception": _text("--exception", help="Exception type, in full or its last part."),
        "reason": click.option("--reason", type=choice("a reason", Reason), help="Why the letter died."),
        "states": click.option(
            "--state", "states", type=choice("a state that this command takes", states, hint=hint),
            multiple=True,
            help=f"State of the letters; repeatable. Default: {default}.",
        ),
        "group": _text(
            "--group", metavar="GROUP",
            help="Fingerprint of a group, or its prefix; see `groups`.",
        ),
        "route": _text("--route", help="Name of a route in dlq_routes that the last failure is on."),
        "since": moment_option(
            "--since", "Last failed at or after this: 90m, 2h, 3d or 1w ago, or ISO 8601."
        ),
        "until": moment_option("--until", "Last failed before this; same formats as --since."),
    }  # fmt: skip


def _other_filters() -> Options:
    return {
        "queue": _text("--queue", help="Queue that the message came from."),
        "worker": _text("--worker", help="Worker of the last failure, or a prefix of its name."),
        "release": _text("--release", metavar="RELEASE", help="Release whose code failed last."),
        "tag": _text("--tag", help="A tag of the letter."),
        "verdict": click.option(
            "--verdict", type=choice("a verdict", Verdict), help="Verdict on the last failure."
        ),
        "rule": _text("--rule", help="Rule that decided about the last failure, or a prefix of its name."),
        "args": click.option(
            "--arg", "args", metavar="NAME=VALUE", multiple=True,
            callback=lambda _ctx, _param, given: tuple(map(Argument.read, given)),
            help="Argument that the letter has; repeatable. Keys inside of it follow after dots.",
        ),
        "values": click.option(
            "--value", "values", metavar="TEXT", multiple=True,
            help="Value that the letter has, in its arguments or in its message; repeatable.",
        ),
        "held": click.option(
            "--held", is_flag=True, help="Only letters that no automatic redrive sends again; see `auto`."
        ),
        "search": _text(
            "--search",
            help="Text in message, exception, task or arguments; case is ignored. It finds nothing in "
            "encrypted contents.",
        ),
        "namespace": _text(
            "--namespace", metavar="NAME", help="Namespace of the app, if this one sees several."
        ),
        "operation": click.option(
            "--operation", metavar="ID",
            help="Only letters of this operation.",
        ),
    }  # fmt: skip


def choice(what: str, values: Iterable[Enum], *, hint: str = "") -> Word:
    """A parameter type for the values of an enumeration; see :class:`Word` for the rest."""
    return Word(what, [value.value for value in values], hint=hint)


def format_option(command: _Command) -> _Command:
    """Add ``--format`` to a command; it is called with ``form``."""
    return click.option(
        "--format", "form", type=Word("a format", FORMATS), default="table", show_default=True,
        help="Output format; a table is plain text in a pipe.",
    )(command)  # fmt: skip


def body_option(text: str) -> Callable[[_Command], _Command]:
    """Add ``--body`` to a command, with this help; it is called with ``with_body``."""
    return click.option("--body", "with_body", is_flag=True, help=text)


def after_option(command: _Command) -> _Command:
    """Add ``--after`` to a command that lists in pages."""
    return click.option(
        "--after", metavar="CURSOR", help="Continue after the page that printed this cursor."
    )(command)


def moment_option(
    name: str, text: str, read: Callable[[str, datetime], datetime] = times.parse_moment
) -> Callable[[_Command], _Command]:
    """Add an option for a moment, which ``read`` reads; see :func:`read_moment`."""
    return click.option(name, metavar="TIME", callback=read_moment(read), help=text)


def states_option(
    kind: type[_State], what: str, of: str, default: str = "all"
) -> Callable[[_Command], _Command]:
    """Add ``--state``, which may be repeated, to a command; it is called with ``states``, a set of ``kind``.

    :param what: a state, with its article.
    :param of: whose states they are.
    """
    return click.option(
        "--state", "states", type=choice(what, kind), multiple=True,
        callback=lambda _ctx, _param, given: frozenset(map(kind, given)),
        help=f"State of {of}; repeatable. Default: {default}.",
    )  # fmt: skip


def limit_option(text: str, default: int | None = None) -> Callable[[_Command], _Command]:
    """Add ``--limit`` to a command."""
    return click.option(
        "--limit", type=whole_number(), metavar="N", default=default,
        show_default=default is not None, help=text,
    )  # fmt: skip


def why_option(command: _Command) -> _Command:
    """Add ``--why`` to a command; it is called with ``why``."""
    return click.option(
        "--why", metavar="TEXT", callback=_not_empty, help="Reason, kept in the audit."
    )(command)


def _not_empty(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    if value is not None and not value.strip():
        raise click.UsageError("--why is empty; give a reason, or leave it out.", ctx)
    return value or ""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The letters that a command names beside its filters, and whether it confirms them."""

    ids: Sequence[str]
    #: Whether it takes every letter, without ids or filters.
    everything: bool
    #: Whether it only shows them.
    dry_run: bool
    #: Whether it changes them without a question.
    yes: bool


def dry_run_option(text: str) -> Callable[[_Command], _Command]:
    """Add ``--dry-run`` to a command."""
    return click.option("--dry-run", is_flag=True, help=text)


def yes_option(command: _Command) -> _Command:
    """Add ``--yes`` to a command."""
    return click.option("--yes", is_flag=True, help="Skip the confirmation.")(command)


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ids, ``--all``, ``--dry-run`` and ``--yes`` to a command; it is called with ``chosen``."""
    options = {
        "ids": click.argument("ids", nargs=-1, metavar="[ID]..."),
        "everything": click.option(
            "--all", "everything", is_flag=True, help="Take every letter, without ids or filters."
        ),
        "dry_run": dry_run_option("Show what the command would do, and change nothing."),
        "yes": yes_option,
    }
    return gathered(options, "chosen", lambda given: Chosen(**given))(command)


#: Python decodes invalid bytes of the command line as surrogates.
_RAW_BYTES = re.compile("[\ud800-\udfff]")


class _Stated(click.types.StringParamType):
    """A text that is not empty and is valid UTF-8."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """``value``, if it is such a text."""
        text = super().convert(value, param, ctx)
        if not text.strip():
            optional = isinstance(param, click.Option) and not param.required
            leave = ", or leave it out" if optional else ""
            self.fail(f"it is empty; give it a value{leave}.", param, ctx)
        if _RAW_BYTES.search(text):
            self.fail(
                "it is not valid UTF-8; write it in the encoding of your terminal.", param, ctx
            )
        return text


STATED = _Stated()


def refuse_empty(command: click.Command) -> None:
    """Make ``command`` and its subcommands refuse texts that are empty or not UTF-8. Parameters with a
    type of their own stay as they are."""
    for param in command.params:
        if param.type is click.STRING:
            param.type = STATED
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            refuse_empty(subcommand)
