"""Options of a redrive: pacing, the guard, checks and repairs. Python has some more: see ``Orders``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

import click

from celery_dlq.cli.options import (
    Options,
    gathered,
    limit_option,
    read_with,
    under,
    whole_number,
    why_option,
)
from celery_dlq.model.operation import Checking, Guard, Orders, Pacing, Repair
from celery_dlq.view import times

_Value = TypeVar("_Value", Pacing, Guard, Checking, Repair)

_GUARD, _CHECKING = Guard(), Checking()


def orders_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add all options of a redrive to a command, which gets the ``orders`` that they make."""
    options = {
        **under("How fast", _pacing_options()),
        **under("When it stops by itself", _guard_options()),
        **under("What it skips", _checking_options()),
        **under("What it changes", _repair_options()),
        "why": why_option,
    }
    return gathered(options, "orders", as_orders)(command)


def as_orders(given: Mapping[str, Any]) -> Orders:
    """The orders for these option values.

    :raises click.UsageError: two options contradict each other.
    """
    _refuse_contradictions(given)
    unlimited = {"max_redrives": None} if given["again"] else {}
    later = {"countdown_s": given["eta"], "eta": None} if isinstance(given["eta"], float) else {}
    return Orders(
        pacing=_made(Pacing, given),
        guard=_made(Guard, given, enabled=not given["no_guard"]),
        checking=_made(Checking, given, **unlimited),
        repair=_made(Repair, given, **later),
        why=given["why"],
    )


def _made(kind: type[_Value], given: Mapping[str, Any], **more: Any) -> _Value:
    """A ``kind`` with the given values, and its defaults for the others."""
    names = {item.name for item in fields(kind)}
    chosen = {name: value for name, value in given.items() if name in names and value is not None}
    return kind(**{**chosen, **more})


def _refuse_contradictions(given: Mapping[str, Any]) -> None:
    canary, limit = given["canary"], given["limit"]
    problems = {
        f"--canary {canary} is larger than --limit {limit}; make it smaller.": (
            canary and limit and canary > limit
        ),
        "--no-guard contradicts --guard-ratio; use only one of them.": (
            given["no_guard"] and given["ratio"] is not None
        ),
    }
    for problem, holds in problems.items():
        if holds:
            raise click.UsageError(problem)


def _pacing_options() -> Options:
    return {
        "limit": limit_option("Send at most this many letters, oldest failures first."),
        "rate": click.option(
            "--rate", metavar="RATE", callback=read_with(times.parse_rate),
            help="Maximum rate: 50/s, 300/m, 1000/h; a plain 50 is per second.",
        ),
        "canary": _count("--canary", "Send this many letters first, and the others only if all succeed."),
        "max_in_flight": _count(
            "--max-in-flight", "Keep at most this many messages without an outcome."
        ),
        "max_queue_depth": _count(
            "--max-queue-depth", "Send nothing to a queue that holds this many messages."
        ),
    }  # fmt: skip


def _guard_options() -> Options:
    return {
        "no_guard": click.option(
            "--no-guard", is_flag=True, help="Do not stop when letters of this redrive fail again."
        ),
        "ratio": click.option(
            "--guard-ratio", "ratio", metavar="SHARE", callback=read_with(_read_share),
            help="Stop when this share of the outcomes are failures, of at least "
            f"{_GUARD.least} outcomes. Default: {_GUARD.ratio:.0%}.",
        ),
    }  # fmt: skip


def _checking_options() -> Options:
    return {
        "again": click.option(
            "--again", is_flag=True,
            help="Send letters no matter how often they were redriven; otherwise, those that were redriven "
            f"{_CHECKING.max_redrives} times are skipped.",
        ),
        "unless_release": click.option(
            "--unless-release", metavar="RELEASE", help="Skip letters that failed in this release."
        ),
    }  # fmt: skip


def _repair_options() -> Options:
    text = functools.partial(click.option, metavar="NAME")
    return {
        "assignments": click.option(
            "--set", "assignments", metavar="PATH=VALUE", multiple=True,
            help="Change an argument: kwargs.currency=USD, args.0=5. Repeatable.",
        ),
        "function": text(
            "--repair", "function", help="Call the function registered by this name (@dlq.repair)."
        ),
        "to_queue": text("--to-queue", help="Send to this queue instead of the original one."),
        "to_task": text("--to-task", help="Run this task instead of the original one."),
        "eta": click.option(
            "--eta", metavar="TIME", callback=read_with(_read_eta),
            help="Run the tasks no sooner than this time, in ISO 8601; or this long after each was sent: 5m.",
        ),
        "priority": click.option(
            "--priority", type=click.IntRange(0, 255), metavar="N", help="Priority of the messages."
        ),
    }  # fmt: skip


def _count(option: str, text: str) -> Callable[[Any], Any]:
    return click.option(option, type=whole_number(), metavar="N", help=text)


def _read_eta(text: str) -> float | datetime:
    """The seconds of a duration, or a time.

    :raises ValueError: the text is neither.
    """
    return times.parse_span(text) if times.is_span(text) else times.parse_point(text)


def _read_share(text: str) -> float:
    """The share that ``20%`` or ``0.2`` stands for: more than 0, at most 1.

    :raises ValueError: the text is not such a share.
    """
    number, percent, rest = text.strip().partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = 0.0
    if rest or not 0 < share <= 1:
        raise ValueError(f"{text!r} is not a share; write 20% or 0.2.")
    return share
