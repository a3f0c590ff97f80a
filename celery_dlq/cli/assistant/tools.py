"""The tools. Each tool runs one of our commands, or one for the assistant alone, whose options are its
arguments: it accepts and refuses the same values as the command line."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from celery_dlq.base.known import unknown_name
from celery_dlq.base.redact import clip
from celery_dlq.cli.admin.help import help_command
from celery_dlq.cli.assistant.framing import LONGEST, framed, framed_error
from celery_dlq.cli.exits import for_app, one_line
from celery_dlq.cli.letters.explain import show_explanation
from celery_dlq.cli.letters.groups import list_groups
from celery_dlq.cli.letters.groups import show as show_group
from celery_dlq.cli.letters.inspect import list_letters
from celery_dlq.cli.letters.inspect import show as show_letter
from celery_dlq.cli.letters.stats import stats
from celery_dlq.cli.options import (
    TAKEABLE,
    Chosen,
    filters,
    limit_option,
    read_with,
    refuse_empty,
    whole_number,
)
from celery_dlq.cli.redrive.operations import list_operations
from celery_dlq.cli.redrive.operations import show as show_operation
from celery_dlq.cli.selection import select
from celery_dlq.cli.session import Session, pass_session
from celery_dlq.errors import CeleryDLQError
from celery_dlq.model.operation import Orders, Pacing
from celery_dlq.redrive.orders import check_orders
from celery_dlq.redrive.plan import make_plan, try_first
from celery_dlq.store.base import Filter
from celery_dlq.view import times
from celery_dlq.view.fields import as_record
from celery_dlq.view.text import visible

logger: logging.Logger = logging.getLogger(__name__)

#: The most characters of a text in a call, and the most texts of a list.
_TEXT, _TEXTS = 500, 20

#: The most rows of an answer, and the rows if the call does not say.
_ROWS, _USUAL_ROWS = 50, 20

_AS_JSON = ("--format=json",)


class Paper:
    """Celery's ``CLIContext`` for a command whose output is an answer."""

    quiet: bool = False
    no_color: bool = True
    has_patience: bool = False

    def __init__(self, app: Any) -> None:
        self.app = app
        self.written: list[str] = []
        self.remarks: list[str] = []

    def echo(self, text: str) -> None:
        """Print on stdout."""
        self.written.append(text)

    def error(self, text: str) -> None:
        """Print on stderr."""
        self.remarks.append(text)


@dataclass(frozen=True)
class Tool:
    """A tool of the assistant."""

    name: str
    command: click.Command
    about: str
    #: Options that each call has, and options that none has.
    given: Sequence[str] = _AS_JSON
    refused: frozenset[str] = frozenset()
    #: Whether the output is a text that has its own frame, or ours.
    is_text: bool = False
    #: The command that a person runs instead; empty for none.
    acts: str = ""
    params: Mapping[str, click.Parameter] = field(init=False)

    def __post_init__(self) -> None:
        refuse_empty(self.command)
        fixed = {option.partition("=")[0] for option in self.given} | self.refused
        params = {
            _name_of(param): param for param in self.command.params if not fixed & {*param.opts}
        }
        object.__setattr__(self, "params", params)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        needed = [name for name, param in self.params.items() if param.required]
        return {
            "type": "object",
            "properties": {name: _schema_of(param) for name, param in self.params.items()},
            "required": needed,
            "additionalProperties": False,
        }

    def answer(self, app: Any, arguments: Mapping[str, Any]) -> str:
        """Run the command.

        :raises click.UsageError: the arguments are wrong.
        :raises CeleryDLQError: the command failed.
        """
        words, paper = self._words(arguments), Paper(app)
        parent = click.get_current_context()
        with self.command.make_context(
            self.name, [*self.given, *words], parent=parent, obj=paper
        ) as context:
            self.command.invoke(context)
        text = "\n".join(paper.written)
        if self.is_text:
            return clip(text, LONGEST)
        person = {"for_a_person": Session(paper).command(self.acts, *words)} if self.acts else {}
        remarks = list(map(one_line, paper.remarks))
        return framed(json.loads(text or "[]"), remarks=remarks, ours=person)

    def _words(self, arguments: Mapping[str, Any]) -> list[str]:
        """The command line for these arguments."""
        options: list[str] = []
        others: list[str] = []
        for name, value in arguments.items():
            param = self.params.get(name)
            if param is None:
                said = unknown_name(f"an argument of {self.name}", _shown(name), self.params)
                raise click.UsageError(said)
            texts = list(_texts(name, param, value))
            if isinstance(param, click.Argument):
                others += texts
            else:
                option = max(param.opts, key=len)
                options += [option if _is_flag(param) else f"{option}={text}" for text in texts]
        if "limit" in self.params and "limit" not in arguments and not self.acts:
            options.append(f"--limit={_USUAL_ROWS}")
        return [*options, *(["--", *others] if others else [])]


def _name_of(param: click.Parameter) -> str:
    if isinstance(param, click.Argument):
        return str(param.name)
    return max(param.opts, key=len).lstrip("-").replace("-", "_")


def _is_flag(param: click.Parameter) -> bool:
    return isinstance(param, click.Option) and param.is_flag


def _is_list(param: click.Parameter) -> bool:
    return param.multiple or param.nargs == -1


def _schema_of(param: click.Parameter) -> dict[str, Any]:
    about = {"description": param.help} if isinstance(param, click.Option) and param.help else {}
    if _is_flag(param):
        return {"type": "boolean", **about}
    if isinstance(param.type, click.IntRange):
        most = _ROWS if param.default is not None else param.type.max
        return {"type": "integer", "minimum": 1, "maximum": most, **about}
    text: dict[str, Any] = {"type": "string", "maxLength": _TEXT}
    if isinstance(param.type, click.Choice):
        text["enum"] = list(param.type.choices)
    if _is_list(param):
        return {"type": "array", "items": text, "maxItems": _TEXTS, **about}
    return {**text, **about}


def _texts(name: str, param: click.Parameter, value: Any) -> Iterator[str]:
    """The words of a command line for ``value``.

    :raises click.UsageError: it does not fit the schema.
    """
    schema = _schema_of(param)
    if value is None or value is False:
        return
    kind: type = {"boolean": bool, "integer": int, "string": str, "array": list}[schema["type"]]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise click.UsageError(
            f"{name} is not of the type {schema['type']}; see the tool's schema."
        )
    if kind is int and not schema["minimum"] <= value <= schema["maximum"]:
        raise click.UsageError(f"{name} is not from {schema['minimum']} to {schema['maximum']:,}.")
    items = list(value) if isinstance(value, list) else [value]
    if len(items) > _TEXTS:
        raise click.UsageError(f"{name} has {len(items):,} items; give at most {_TEXTS}.")
    for item in items:
        yield _checked_text(name, item)


def _checked_text(name: str, item: Any) -> str:
    if isinstance(item, (list, dict)) or item is None:
        raise click.UsageError(f"{name} has an item that is not a text; see the tool's schema.")
    text = str(item)
    if len(text) > _TEXT:
        raise click.UsageError(f"{name} has {len(text):,} characters; give at most {_TEXT}.")
    if visible(text) != text:
        raise click.UsageError(f"{name} has characters that cannot be seen; leave them out.")
    return text


def _shown(text: str) -> str:
    return visible(clip(text, 80))


@click.command("explain")
@click.argument("what", required=False)
@pass_session
def explain(session: Session, what: str | None) -> None:
    """Explain what ``dlq explain`` explains, except files and modules that are not imported."""
    show_explanation(session, what, "json", by_a_person=False)


@click.command("redrive")
@click.argument("ids", nargs=-1)
@filters(states=TAKEABLE)
@limit_option("Send at most this many letters, oldest failures first.")
@click.option(
    "--canary", type=whole_number(),
    help="Send this many letters first, and the others only if all succeed.",
)  # fmt: skip
@click.option(
    "--rate", callback=read_with(times.parse_rate), help="Maximum rate, such as 50/s, 300/m or 1000/h."
)  # fmt: skip
@click.option(
    "--all", "everything", is_flag=True, help="Take every letter, without ids or filters."
)
@pass_session
def propose(
    session: Session, ids: Sequence[str], wanted: Filter, everything: bool, **pacing: Any
) -> None:
    """Show the plan; it creates no operation. The first letters are checked, for a second at most."""
    chosen = Chosen(ids=ids, everything=everything, dry_run=True, yes=False)
    wanted = select(session, chosen, wanted)
    session.load_tasks()
    given = {name: value for name, value in pacing.items() if value is not None}
    orders = Orders(pacing=Pacing(**given))
    check_orders(orders)
    # DeadLetterQueue.plan() also frees claims, and a tool writes nothing.
    context = session.queue.redrive_context
    plan = make_plan(context, wanted, orders, try_first(context, wanted, orders))
    skipped = [as_record(one, ("task_id", "task", "why_not")) for one in plan.skipped]
    session.screen.emit("json", as_record(plan, skipped=skipped, changes=[]))


TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool("overview", stats, "The numbers of open, arriving and closed dead letters."),
        Tool("groups", list_groups, "Groups of dead letters with one cause, the largest first."),
        Tool(
            "brief", show_group,
            "One group in brief: its cause with the user's own frames, the verdict, attempts, arguments that "
            "most letters share, releases, and how redrives ended. fingerprint may be a prefix.",
            given=("--format=markdown",), is_text=True,
        ),
        Tool("letters", list_letters, "Dead letters, the newest failure first."),
        Tool(
            "letter", show_letter,
            "One letter in full. Its id may be a prefix.",
            refused=frozenset({"--body"}),
        ),
        Tool(
            "explain", explain,
            "Which rule decided about a letter or a group, or decides about an exception type; or how a task "
            "is retried. what is an id, a fingerprint, an exception's dotted name, or a task's name. Without "
            "it: the exception types about which no rule decides.",
            given=(),
        ),
        Tool("operations", list_operations, "Redrives that ran or run, the newest first."),
        Tool("operation", show_operation, "One redrive, and the outcomes of its letters."),
        Tool(
            "docs", help_command,
            "A page of celery-dlq's documentation, by its topic or a command. Without topic: the topics.",
            given=(), is_text=True,
        ),
        Tool(
            "propose_redrive", propose,
            "The plan of a redrive: how many letters would be sent, and which would not. Nothing is sent. "
            "Show the command line in for_a_person to a person, who decides and runs it.",
            given=(), acts="redrive",
        ),
    )
}  # fmt: skip


def call(app: Any, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
    """The answer to a call, and whether it is an error. Errors may repeat names from outside."""
    tool = TOOLS.get(name)
    try:
        if tool is None:
            return unknown_name("a tool", _shown(name), TOOLS), True
        return tool.answer(app, arguments), False
    except click.UsageError as error:
        said = one_line(error.format_message())
    except CeleryDLQError as error:
        said = one_line(for_app(str(error)))
    except Exception:
        logger.exception("the tool %s failed", name)
        said = "The tool failed because of an unexpected error; the log of the server has it."
    finally:
        # A database that stands still keeps an open connection waiting, but a new one reaches its timeout.
        store = vars(app.__dict__.get("dead_letter_queue", app)).get("store")
        if store is not None:
            store.close()
    return framed_error(said), True
