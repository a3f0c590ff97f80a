"""What is API, name by name. `api.txt` has the names of the newest release. If one of them is missing now,
programs that use it break, so it has to be deprecated first. A new one is API once it is released, so it is
added on purpose.

`python tests/test_api.py` writes the file.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import yaml

import celery_dlq
from celery_dlq import hooks, testing, tickets
from celery_dlq.api.groups import Groups
from celery_dlq.api.recorder import Recorder
from celery_dlq.cli import dlq, exits
from celery_dlq.metrics.families import STORE_FAMILIES, WORKER_FAMILIES
from celery_dlq.redrive.operation import Operations
from celery_dlq.settings import STORE_URL_VARIABLE, Settings
from celery_dlq.store.database import tables
from celery_dlq.worker.options import TaskOptions

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_name("api.txt")
ROLES = {"redrives": Operations, "groups": Groups, "recorder": Recorder}


def names() -> Iterator[str]:
    for module in (celery_dlq, hooks, testing, tickets):
        yield from _of_module(module)
    yield from (f"setting dlq_{item.name}" for item in fields(Settings))
    yield from (f"variable {name}" for name in (STORE_URL_VARIABLE,))
    options = (name for name in TaskOptions.__annotations__ if not name.startswith("_"))
    yield from (f"task option {name}" for name in options if name != "wire")
    yield from _of_commands(dlq, "dlq")
    yield from (f"status {value}" for name, value in vars(exits).items() if name.isupper())
    yield from (f"JSON {name}" for name in json_fields())
    for family in (*STORE_FAMILIES, *WORKER_FAMILIES):
        yield f"metric {family.name} {' '.join(family.labels)}".rstrip()
    yield from _of_rest()
    for table in (*tables.metadata.tables.values(), tables.version):
        yield from (f"column {table.name}.{column.name}" for column in table.columns)


def _of_module(module: ModuleType) -> Iterator[str]:
    for name in module.__all__:
        item, place = getattr(module, name), f"{module.__name__}.{name}"
        yield f"python {place}"
        if inspect.isclass(item) and issubclass(item, Enum):
            yield from (f"value {place} {one.value}" for one in item)
        elif not (inspect.isclass(item) and issubclass(item, (Exception, celery_dlq.DLQTask))):
            yield from _of_callable(item, place)
        if inspect.isclass(item):
            yield from _of_methods(item, place)
        if item is celery_dlq.DeadLetterQueue:
            for role, made in ROLES.items():
                yield from _of_methods(made, f"{place}.{role}")


def _of_methods(item: type, place: str) -> Iterator[str]:
    for method in dir(item):
        # Reading DLQTask.app would bind the class to an app, for the tests that follow.
        made = inspect.getattr_static(item, method)
        is_own = inspect.isfunction(made) and made.__module__.startswith("celery_dlq")
        if is_own and not method.startswith("_"):
            yield from _of_callable(made, f"{place}.{method}")


def _of_callable(item: Any, place: str) -> Iterator[str]:
    for name in inspect.signature(item).parameters:
        if name != "self" and not name.startswith("_"):
            yield f"parameter {place} {name}"


def _of_commands(group: click.Group, path: str) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command, here = group.get_command(context, name), f"{path} {name}"
        assert command is not None
        yield f"command {here}"
        if isinstance(command, click.Group):
            yield from _of_commands(command, here)
        options = (one for one in command.params if isinstance(one, click.Option))
        yield from (f"option {here} {name}" for one in options for name in one.opts)


def json_fields() -> set[str]:
    """The fields that the reference names, and words in them. `test_docs.py` compares the page with the
    records that commands print."""
    text = (ROOT / "docs/reference/cli.md").read_text().partition("## JSON fields")[2]
    return {name for name in re.findall(r"`([a-z][a-z_]*)`", text) if not name.startswith("dlq_")}


def _of_rest() -> Iterator[str]:
    paths = yaml.safe_load((ROOT / "docs/reference/openapi.yaml").read_text())["paths"]
    for path, methods in paths.items():
        yield from (f"REST {method.upper()} {path}" for method in methods if method != "parameters")


def test_no_name_of_the_release_is_missing_and_new_ones_are_listed() -> None:
    listed, found = set(FILE.read_text().splitlines()), set(names())
    assert len(listed) > 1000
    assert sorted(listed - found) == [], "deprecate it first: docs/reference/python.md"
    assert sorted(found - listed) == [], "run: python tests/test_api.py"


if __name__ == "__main__":
    FILE.write_text("\n".join(sorted(set(names()))) + "\n")
