"""Reads the built-in table from the files in ``table/``, one for each domain.

The name of a section is the module that defines the classes below it, or several modules with the same
classes, separated by commas. A name with a capital is a title: the classes below it have their full names.
``source`` names the file of the library, or the standard, that a row follows. Every other line is a row::

    rule verdict: Class OtherClass

``verdict`` is one of these:

- ``transient`` or ``terminal``: always;
- ``network``: the network failed, so transient unless a lasting cause is behind it;
- ``wrapper (words)``: the exception that it wraps decides; the words name that exception for people;
- ``group``: the members decide;
- ``by module.probe (words)``: the function of a module in this room decides by what the words name;
- ``by module.function(values) (words)``: a probe that the function makes from these values;
- ``by module.probe else`` and one of the first three: the same, and what holds if the probe finds nothing.

``package.*`` in the place of a class: all exceptions of the package, unless a row names one of their classes.
``terminal: package.*`` therefore means that their cause is not looked at.
"""

from __future__ import annotations

import re
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

from celery_dlq.classify.builtin import (
    cloud,
    databases,
    http,
    postgres,
    protocols,
    services,
    stdlib,
    stores,
)
from celery_dlq.classify.table import Probe, Row
from celery_dlq.model.states import Verdict

#: The domains, in the order of the documentation.
DOMAINS = (
    "stdlib", "formats", "mail", "remote", "resilience", "web", "cloud", "services", "databases",
    "stores", "messaging",
)  # fmt: skip

_FOLDER = Path(__file__).parent / "table"

_PROBES = {
    module.__name__.rpartition(".")[2]: module
    for module in (cloud, databases, http, postgres, protocols, services, stdlib, stores)
}

_ROW = re.compile(
    r"(?P<rule>[a-z0-9_.]+)"
    r"(?: by (?P<probe>[a-z0-9_]+\.[a-z0-9_]+)(?:\((?P<values>[^)]+)\))?)?(?: else)?"
    r"(?: (?P<kind>transient|terminal|network|wrapper|group))?"
    r"(?: \((?P<words>.+)\))?"
)

_DEPENDS_ON = {
    "network": "a certificate, unknown host, bad URL or refusal behind it; else transient",
    "group": "the members: all have to be transient",
}


def rows_of(domain: str) -> tuple[Row, ...]:
    """The rows of one domain.

    :raises ValueError: the file has a mistake.
    """
    file = _FOLDER / f"{domain}.ini"
    parser = RawConfigParser(
        delimiters=(":",), comment_prefixes=("#",), empty_lines_in_values=False
    )
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(file.read_text(encoding="utf-8"), file.name)
    return tuple(_row(title, *item) for title in parser.sections() for item in _rows(parser, title))


def _rows(parser: RawConfigParser, title: str) -> list[tuple[str, str]]:
    items = parser.items(title)
    if not items or items[0][0] != "source" or not items[0][1]:
        raise ValueError(
            f"[{title}] cites nothing; begin it with 'source: the file of the library'."
        )
    return items[1:]


def _row(title: str, head: str, classes: str) -> Row:
    match = _ROW.fullmatch(head)
    problem = _problem(match, classes)
    if match is None or problem:
        raise ValueError(f"[{title}] {head!r} {problem}.")
    kind = match["kind"]
    # The beginnings of the classes' names.
    modules = [""] if title[0].isupper() else [f"{name}." for name in title.split(", ")]
    return Row(
        match["rule"],
        tuple(f"{module}{name}" for module in modules for name in classes.split()),
        verdict=Verdict(kind) if kind in ("transient", "terminal") else None,
        probe=_probe(match) if match["probe"] else None,
        network=kind == "network",
        group=kind == "group",
        depends_on=match["words"] or _DEPENDS_ON.get(kind, ""),
    )


def _problem(match: re.Match[str] | None, classes: str) -> str:
    """The mistake in a row; empty if there is none."""
    if match is None:
        return "is not a row; write 'rule verdict: classes'"
    if not classes:
        return "names no class; add one, or remove the row"
    kind, words = match["kind"], match["words"]
    if kind is None and match["probe"] is None:
        return "says no verdict; add one"
    if not words and (kind == "wrapper" or (kind is None and match["probe"])):
        return "does not name in words what decides; add them in parentheses"
    return ""


def _probe(match: re.Match[str]) -> Probe:
    path, values = match["probe"], match["values"]
    module, _, name = path.partition(".")
    found: Any = getattr(_PROBES.get(module), name, None)
    if found is None:
        raise ValueError(f"there is no probe {path}; correct the name.")
    probe: Probe = found if values is None else found(match["rule"], *values.split())
    return probe
