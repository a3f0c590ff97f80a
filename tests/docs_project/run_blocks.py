"""Runs blocks of Python, each in a new process and in a project of its own; called by test_docs_blocks.py.

Reads a JSON list of blocks from standard input, and writes a JSON object to standard output: what is
wrong with which of them.
"""

from __future__ import annotations

import ast
import builtins
import dis
import json
import os
import shutil
import sys
import tempfile
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from celery import Celery
from support import factories

# The modules that most blocks import: loaded once, and not once for each block.
from celery_dlq import DeadLetterQueue, hooks
from celery_dlq.store.database import schema
from celery_dlq.store.sql import SQLStore

PROJECT = Path(__file__).parent

#: The letter that the examples speak of, and as many beside it as the examples' canary has.
LETTERS = [factories.letter(f"0d3f0000-0000-4000-8000-00000000000{n}") for n in range(5)]

ENVIRONMENT = {
    "SLACK_URL": "https://hooks.slack.example/services/T0",
    "SLACK_PAYMENTS_URL": "https://hooks.slack.example/services/T1",
    "WEBHOOK_SECRET": "whsec_" + "c2VjcmV0" * 4,
    "GITHUB_TOKEN": "t0ken",
    "GITLAB_TOKEN": "t0ken",
    "JIRA_TOKEN": "t0ken",
}


def main() -> None:
    assert hooks.EventHook
    blocks = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store.sqlite3"
        fill(store)
        wrong = {}
        for number, block in enumerate(blocks):
            project = Path(directory) / str(number)
            lay_out(project, block["files"])
            shutil.copy(store, project)
            wrong[block["name"]] = in_a_child(block, project)
    json.dump({name: what for name, what in wrong.items() if what}, sys.stdout)


def fill(path: Path) -> None:
    """Make a store with letters in it."""
    store = SQLStore(f"sqlite:///{path}")
    schema.upgrade(store.database)
    store.letters.save(LETTERS)
    store.close()


def lay_out(project: Path, files: dict[str, str]) -> None:
    """Copy the project, with the files that the block's page shows in the place of its own."""
    shutil.copytree(PROJECT, project)
    for name, text in files.items():
        if name == "shop.py":  # else the package of that name would be found first
            shutil.rmtree(project / "shop")
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)


def in_a_child(block: dict[str, Any], project: Path) -> str:
    """What is wrong with ``block``, run by a copy of this process; "" for nothing."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiving)
        problem = "it ended its process"
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            problem = problem_of(block, project)
        except BaseException:
            problem = traceback.format_exc()
        finally:
            os.write(sending, problem.encode()[:60_000])
            os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


def problem_of(block: dict[str, Any], project: Path) -> str:
    os.chdir(project)
    sys.path.insert(0, str(project))
    os.environ.update(ENVIRONMENT, CELERY_DLQ_STORE_URL="sqlite:///store.sqlite3")
    module = types.ModuleType(block["module"])
    sys.modules.setdefault(module.__name__, module)
    exec(compile(block["text"], block["name"], "exec"), vars(module))
    check_apps([*vars(module).values(), *vars(sys.modules.get("shop", module)).values()])
    return "\n".join(unresolved(block["text"], vars(module)))


def check_apps(values: list[object]) -> None:
    """Check the settings, rules and hooks of every app among ``values``, as a worker does at its start."""
    for app in values:
        if isinstance(app, Celery):
            app.finalize(auto=True)
            queue = DeadLetterQueue.of(app)
            queue.check_rules()
            queue.check_store_url()
            queue.hooks.check()


def unresolved(text: str, namespace: dict[str, Any]) -> Iterator[str]:
    """The names in functions' bodies, which have not run, that would lead nowhere."""
    known = {*namespace, *vars(builtins)}
    for name in sorted(global_names(compile(text, "", "exec")) - known):
        yield f"{name} is not defined"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = namespace.get(node.value.id)
            if isinstance(module, types.ModuleType) and not hasattr(module, node.attr):
                yield f"{node.value.id} has no {node.attr}"


def global_names(code: types.CodeType) -> set[str]:
    named = {
        step.argval
        for step in dis.get_instructions(code)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return named.union(*map(global_names, inner))


if __name__ == "__main__":
    main()
