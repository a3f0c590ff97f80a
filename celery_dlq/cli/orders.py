"""Options that say how a redrive sends, when it stops by itself, what it checks and what it changes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import click

from celery_dlq.cli.options import limit_option, read_with
from celery_dlq.operation import Checking, Guard, Orders, Pacing, Repair
from celery_dlq.view import times

_Value = TypeVar("_Value", Pacing, Guard, Checking, Repair)

_GUARD, _CHECKING = Guard(), Checking()

#: Options whose value is a text, and how they are written.
_TEXTS = {
    "unless_release": "--unless-release",
    "transform": "--transform",
    "to_queue": "--to-queue",
    "to_task": "--to-task",
}


def orders_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command all options of a redrive; it is called with ``orders``, what was made of them."""
    options = {**_pacing_options(), **_guard_options(), **_checking_options(), **_repair_options()}

    @functools.wraps(command)
    def ordered(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in options}
        return command(*args, orders=as_orders(given), **kwargs)

    for option in reversed(options.values()):
        ordered = option(ordered)
    return ordered


def as_orders(given: Mapping[str, Any]) -> Orders:
    """The orders of option values.

    :raises click.UsageError: a text is empty, or two options contradict each other.
    """
    for name, option in _TEXTS.items():
        if given[name] is not None and not given[name].strip():
            # Taken for none, an unset shell variable would open a gate.
            raise click.UsageError(f"{option} is empty; give it a value, or leave it out.")
    _refuse_contradictions(given)
    unlimited = {"max_redrives": None} if given["again"] else {}
    return Orders(
        pacing=_made(Pacing, given),
        guard=_made(Guard, given, enabled=not given["no_guard"]),
        checking=_made(Checking, given, **unlimited),
        repair=_made(Repair, given),
    )


def _made(kind: type[_Value], given: Mapping[str, Any], **more: Any) -> _Value:
    """A ``kind`` of those values that were given; all others are its own defaults."""
    names = {item.name for item in fields(kind)}
    chosen = {name: value for name, value in given.items() if name in names and value is not None}
    return kind(**chosen, **more)


def _refuse_contradictions(given: Mapping[str, Any]) -> None:
    tuned = [name for name in ("window", "ratio", "least", "in_a_row") if given[name] is not None]
    canary, limit = given["canary"], given["limit"]
    problems = {
        "--ramp grows up to --rate; give that, too.": given["ramp_s"] and given["rate"] is None,
        f"--canary {canary} is more than --limit {limit}; make it smaller.": (
            canary and limit and canary > limit
        ),
        "--no-guard contradicts the other options of the guard; leave one of them out.": (
            given["no_guard"] and tuned
        ),
        "--again contradicts --max-redrives; leave one of them out.": (
            given["again"] and given["max_redrives"] is not None
        ),
        "--validate-timeout says nothing without --validate; add that.": (
            given["validate_timeout_s"] and not given["validate"]
        ),
        "--countdown contradicts --eta; leave one of them out.": (
            given["countdown_s"] is not None and given["eta"] is not None
        ),
    }
    for problem, holds in problems.items():
        if holds:
            raise click.UsageError(problem)


Options = dict[str, Callable[[Any], Any]]


def _pacing_options() -> Options:
    return {
        "limit": limit_option("At most so many letters, the oldest failures first."),
        "rate": click.option(
            "--rate", metavar="RATE", callback=read_with(times.parse_rate),
            help="At most so many messages: 50/s, 300/m, 1000/h; 50 means a second.",
        ),
        "ramp_s": _span("--ramp", "ramp_s", "For so long the rate grows evenly up to --rate: 2m."),
        "canary": _count("--canary", "Send so many first; the others only if all of them succeed."),
        "batch": _count("--batch", "Letters that are claimed at a time. Default: dlq_redrive_batch_size."),
        "max_in_flight": _count(
            "--max-in-flight", "At most so many messages whose outcome is awaited."
        ),
        "max_queue_depth": _count(
            "--max-queue-depth", "Send nothing to a queue that holds so many messages."
        ),
    }  # fmt: skip


def _guard_options() -> Options:
    return {
        "no_guard": click.option(
            "--no-guard", is_flag=True, help="Do not stop when letters of this redrive come back."
        ),
        "window": _count(
            "--guard-window", f"Messages sent ahead of their outcomes. Default: {_GUARD.window}.",
            "window",
        ),
        "ratio": click.option(
            "--guard-ratio", "ratio", metavar="SHARE", callback=read_with(_share),
            help=f"Stop when such a share of the outcomes are failures. Default: {_GUARD.ratio:.0%}.",
        ),
        "least": _count(
            "--guard-least",
            "Outcomes before that share means something, or as many as the window has, if fewer. "
            f"Default: {_GUARD.least}.", "least",
        ),
        "in_a_row": _count(
            "--guard-in-a-row", f"Stop after so many failures in a row. Default: {_GUARD.in_a_row}.",
            "in_a_row",
        ),
    }  # fmt: skip


def _checking_options() -> Options:
    patience = times.duration(_CHECKING.validate_timeout_s)
    return {
        "max_redrives": _count(
            "--max-redrives",
            f"Skip letters that were redriven so often. Default: {_CHECKING.max_redrives}.",
        ),
        "again": click.option(
            "--again", is_flag=True, help="Send letters however often they were redriven."
        ),
        "max_age_s": _span("--max-age", "max_age_s", "Skip letters that failed longer ago: 7d."),
        "unless_release": click.option(
            "--unless-release", metavar="RELEASE", help="Skip letters that failed in this release."
        ),
        "validate": click.option(
            "--validate", is_flag=True,
            help="First run each task, or its validate(), in a process of its own here.",
        ),
        "validate_timeout_s": _span(
            "--validate-timeout", "validate_timeout_s",
            f"Longest such run. Default: {patience}.",
        ),
    }  # fmt: skip


def _repair_options() -> Options:
    text = functools.partial(click.option, metavar="NAME")
    return {
        "assignments": click.option(
            "--set", "assignments", metavar="PATH=VALUE", multiple=True,
            help="Change an argument: kwargs.currency=USD, args.0=5. May be given several times.",
        ),
        "transform": click.option(
            "--transform", metavar="MODULE:FUNCTION",
            help="Change each message by a function of yours, or skip it.",
        ),
        "to_queue": text("--to-queue", help="Send to this queue instead of where they came from."),
        "to_task": text("--to-task", help="Run this task instead."),
        "countdown_s": _span(
            "--countdown", "countdown_s", "Workers run each so long after it was sent: 30s, 5m."
        ),
        "eta": click.option(
            "--eta", metavar="TIME", callback=read_with(times.parse_point),
            help="Workers run them no sooner than this: ISO 8601.",
        ),
        "priority": click.option(
            "--priority", type=click.IntRange(0, 255), metavar="N", help="Priority of the messages."
        ),
    }  # fmt: skip


def _count(option: str, text: str, *name: str) -> Callable[[Any], Any]:
    return click.option(option, *name, type=click.IntRange(min=1), metavar="N", help=text)


def _span(option: str, name: str, text: str) -> Callable[[Any], Any]:
    return click.option(
        option, name, metavar="DURATION", callback=read_with(times.parse_span), help=text
    )


def _share(text: str) -> float:
    """The part of one that ``20%`` or ``0.2`` is.

    :raises ValueError: it is none, zero, or more than one.
    """
    number, percent, rest = text.strip().partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = 0.0
    if rest or not 0 < share <= 1:
        raise ValueError(f"{text!r} is no share; write 20% or 0.2.")
    return share
