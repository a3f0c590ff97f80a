"""Every command and every option with wrong values: an error in a sentence, never a traceback.

The commands are walked, so that one that is added later is tried, too.
"""

from __future__ import annotations

import ast
from pathlib import Path

import click
import pytest
from celery.bin.base import CLIContext
from support.factories import letter

import celery_dlq
from celery_dlq.cli import _COMMANDS, dlq
from celery_dlq.cli.exits import DONE, FAILED, INTERRUPTED, PARTLY, STORE, USAGE
from celery_dlq.cli.options import MAYBE_EMPTY
from celery_dlq.errors import CeleryDLQError
from celery_dlq.model.group import Annotate, Assign, Ignore, Reopen, Resolve
from celery_dlq.store.base import ACTS

#: Those that run until they are stopped.
ENDLESS = {"watch", "exporter"}

HOSTILE = [
    "nosuch", "-1", "0", "9" * 26, "9" * 26 + "w", "999999999w", "1e999", "nan", "0001-01-01",
    "9999-12-31T23:59:59", "a\x1b[2Jb", "x" * 5_000, "a:b", "kwargs.a=" + "[" * 2_000,
    "1.99999999999999999999999",
]  # fmt: skip

#: The commands that run with every value of the filters. Others run with each fifth one, and parse the rest:
#: the filters have the same code in all commands.
FILTERING = {("list",), ("redrive",), ("groups",)}

STATUSES = {DONE, FAILED, USAGE, STORE, PARTLY, INTERRUPTED}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """A wrong value may be a file's name."""
    monkeypatch.chdir(tmp_path)


def commands(group=dlq, path=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield (*path, name), command
            yield from commands(command, (*path, name))
        elif name not in ENDLESS:
            yield (*path, name), command


FILTERS = dlq.get_command(click.Context(dlq), "list").params
ALL = [pytest.param(path, command, id=" ".join(path)) for path, command in commands()]


def arguments(command, wrong=None, value=""):
    """A command line in which only the parameter ``wrong`` has ``value``."""
    words = []
    for param in command.params:
        if isinstance(param, click.Option):
            if param is wrong:
                words += [param.opts[0], value]
            elif param.required:
                words += [param.opts[0], "x"]
    positional = [item for item in command.params if isinstance(item, click.Argument)]
    return [*words, "--", *[value if item is wrong else "0d3f1111" for item in positional]]


def is_one_sentence(result):
    """Whether an error is one sentence after click's usage."""
    lines = [line for line in result.output.splitlines() if line]
    usage = [line for line in lines if line.startswith(("Usage:", "Try "))]
    return len(lines) - len(usage) >= 1 and "Traceback" not in result.output


def problem_of(path, result):
    """The problem with the end of a command; empty if there is none."""
    if result.exit_code not in STATUSES:
        return f"status {result.exit_code}"
    if "\x1b" in result.output or len(result.stderr) > 20_000:
        return "the value is written out as it is"
    if result.exit_code in (FAILED, USAGE) and not is_one_sentence(result) and path != ("check",):
        return "nothing is said"
    return None


def problem_of_parsing(app, command, words):
    """The problem with reading a command line, without running the command; None if there is none."""
    cli = CLIContext(app=app, no_color=True, workdir=None)
    try:
        command.make_context(command.name, words, parent=click.Context(dlq, obj=cli))
    except click.UsageError as error:
        said = error.format_message()
        return (
            None if said and "\x1b" not in said and len(said) < 20_000 else "nothing safe is said"
        )
    except CeleryDLQError as error:
        return None if str(error) else "nothing is said"
    except click.exceptions.Exit as end:
        return None if end.exit_code == 3 else f"status {end.exit_code}"
    return None


def valued(command):
    """The parameters that take a value."""
    for param in command.params:
        if isinstance(param, click.Argument) or not (param.is_flag or param.count):
            yield param


@pytest.mark.parametrize(("path", "command"), ALL)
def test_a_wrong_value_is_refused_in_one_sentence(run, store, app, monkeypatch, path, command):
    monkeypatch.setenv("EDITOR", "true")
    store.letters.save([letter("0d3f1111")])
    found = []
    filters = set() if path in FILTERING else {tuple(one.opts) for one in FILTERS}
    for param in valued(command):
        for place, value in enumerate(HOSTILE):
            words = arguments(command, param, value)
            try:
                if tuple(param.opts) in filters and (place + len(param.name)) % 5:
                    problem = problem_of_parsing(app, command, words)
                else:
                    problem = problem_of(path, run(*path, *words))
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"[:200]
            if problem:
                found.append((param.name, value[:40], problem))
    assert found == []


@pytest.mark.parametrize(("path", "command"), ALL)
def test_a_value_that_is_empty_or_not_utf_8_is_refused(run, store, path, command):
    status = 3 if path == ("check",) else USAGE
    taken = []
    for param in valued(command):
        for value in (" ", "\udcff"):
            result = run(*path, *arguments(command, param, value))
            names = {param.human_readable_name, *param.opts}
            named = any(name in result.output for name in names)
            if (result.exit_code, named) != (status, True):
                taken.append((param.name, value, result.exit_code, result.output[-200:]))
    optional = [param.name for param in valued(command) if param.type is MAYBE_EMPTY]
    assert [one for one in taken if one[0] not in optional] == []
    assert {path: optional} == {path: {"note": ["text"], "assign": ["owner"]}.get(path[-1], [])}


@pytest.mark.parametrize("path", [(), ("groups",), ("operations",), ("db",)])
def test_an_unknown_command_lists_the_known_ones(run, path):
    result = run(*path, "shwo")
    assert result.exit_code == USAGE
    assert "'shwo' is not a command of" in result.stderr
    near = {"list": "show", "groups": "show", "operations": "show"}
    named = near.get(path[0] if path else "list")
    assert named is None or f"did you mean '{named}'?" in result.stderr
    assert "there are " in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["list", "--state", "open"],
            "there are dead, claimed, redriven, resolved, discarded, parked.",
        ),
        (["list", "--state", "open"], "Without --state, the command takes open letters."),
        (["redrive", "--state", "dad"], "did you mean 'dead'?"),
        (["list", "--reason", "exausted"], "did you mean 'exhausted'?"),
        (["list", "--format", "xml"], "there are table, json, jsonl, csv."),
        (
            ["audit", "--act", "foo"],
            "'foo' is not an act in the audit; there are redrive, ",
        ),
        (["audit", "--act", "discrad"], "did you mean 'discard'?"),
        (["groups", "--status", "opne"], "did you mean 'open'?"),
        (["groups", "--mark", "x"], "there are new, regressed."),
        (["operations", "list", "--state", "runing"], "did you mean 'running'?"),
        (["groups", "resolve", "d", "--release", ""], "'--release': it is empty; give it a value"),
        (["redrive", "--all", "--to-task", "shop.chrge"], "did you mean 'shop.charge'?"),
    ],
)
def test_an_unknown_word_lists_the_known_ones(run, store, words, said):
    result = run(*words)
    assert result.exit_code == USAGE
    assert said in " ".join(result.stderr.split())


def test_a_task_that_neither_the_app_nor_a_letter_has_is_an_error(run, three):
    for words in (
        ["list"], ["groups"], ["redrive"], ["discard", "--why", "x"], ["discard", "--undo"], ["unpark"],
        ["reclassify"],
    ):  # fmt: skip
        result = run(*words, "--task", "chagre")
        assert (result.exit_code, result.stdout) == (FAILED, ""), words
        assert "'chagre' is not a task of this app or of a letter; did you mean" in result.stderr
        assert "shop.charge" in result.stderr
    checked = run("check", "--max-depth", "0", "--task", "chagre")
    assert (checked.exit_code, checked.stdout[:11]) == (3, "DLQ UNKNOWN")


def test_a_task_of_the_app_without_letters_is_not_an_error(run, store, app):
    @app.task(name="shop.new", shared=False)
    def new():
        """Do nothing."""

    for name in ("shop.new", "new"):
        assert run("list", "--task", name).stdout == "No dead letters match.\n"


def test_a_task_that_only_a_closed_letter_has_is_not_an_error(run, store):
    store.letters.save([letter("a1", task="shop.gone")])
    assert run("discard", "a1", "--why", "x").exit_code == DONE
    assert run("list", "--task", "gone").stdout == "No dead letters match.\n"


def test_a_task_is_not_checked_without_its_code(run, store, app):
    app.conf.imports = ["not_installed_here"]
    assert run("list", "--task", "shop.new").exit_code == DONE


def test_an_unknown_group_is_an_error_in_lists_too(run, three):
    for words in (["list"], ["groups"], ["redrive"]):
        result = run(*words, "--group", "nosuch")
        assert result.exit_code == FAILED, words
        assert "No group has a fingerprint that begins with 'nosuch'" in result.stderr


def test_a_list_may_show_several_groups(run, three):
    assert len(run("list", "--group", "a", "--format", "jsonl").stdout.splitlines()) >= 1


def acts_in_the_code():
    """The values of ``act=``, and the names of acts on groups."""
    for path in Path(celery_dlq.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.keyword) or node.arg != "act":
                continue
            if isinstance(node.value, ast.Constant) and node.value.value:
                yield node.value.value
    yield from (act.name for act in (Annotate, Assign, Ignore, Reopen, Resolve))


def test_every_recorded_act_is_a_filter_of_the_audit():
    assert set(acts_in_the_code()) <= set(ACTS)
    assert len(set(ACTS)) == len(ACTS) == 38


def test_every_command_is_tested():
    assert {path[0] for path, _ in commands()} | ENDLESS == set(_COMMANDS)
