import re
import subprocess
import sys

import click
import pytest
from celery.bin.base import CLIContext
from click.testing import CliRunner

from celery_dlq.cli import _COMMANDS, _SECTIONS, dlq, exits
from celery_dlq.errors import (
    CeleryDLQError,
    FilterError,
    OrdersError,
    SchemaError,
    SettingsError,
    StoreError,
    StoreUnavailable,
)


def is_group(name):
    return isinstance(dlq.get_command(click.Context(dlq), name), click.Group)


def test_help_names_every_command_in_a_whole_sentence(run):
    out = run("--help").stdout
    listed = out[out.index("\nLook:\n") :]
    assert re.findall(r"^  (\w+)  ", listed, re.MULTILINE) == list(_COMMANDS)
    assert re.findall(r"^(\w[\w ]*):$", listed, re.MULTILINE) == list(_SECTIONS)
    assert "..." not in listed
    assert "130  interrupted" in out


@pytest.mark.parametrize(
    "name",
    [*_COMMANDS, "db upgrade", "db current", "db sql", "operations list", "operations resume"],
)
def test_every_command_has_help_for_itself_and_its_options(run, name):
    result = run(*name.split(), "--help")
    assert result.exit_code == 0
    context = click.Context(dlq)
    command = dlq
    for word in name.split():
        command = command.get_command(context, word)
    assert command.help
    assert [
        item.name for item in command.params if isinstance(item, click.Option) and not item.help
    ] == []


def test_the_options_of_a_redrive_have_headings(run):
    out = run("redrive", "--help").stdout
    headings = re.findall(r"^(\w[\w ]*):$", out, re.MULTILINE)
    assert headings == [
        "Which letters", "How fast", "When it stops by itself", "What it skips", "What it changes",
        "Options",
    ]  # fmt: skip
    assert out.index("--canary") < out.index("When it stops") < out.index("--guard-ratio")


@pytest.mark.parametrize("name", [name for name in _COMMANDS if is_group(name)])
def test_a_group_of_commands_does_something_when_it_is_called_alone(run, app, tmp_path, name):
    (tmp_path / "archive").mkdir()
    app.conf.dlq_archive_url = f"file://{tmp_path}/archive"
    assert run("db", "upgrade").exit_code == 0
    alone, with_options = run(name), run(name, "--format", "json")
    assert alone.exit_code == 0, alone.stderr
    assert "Usage" not in alone.stdout
    assert with_options.exit_code == (0 if name != "db" else 2)
    assert "Commands:" in run(name, "--help").stdout


def test_a_misspelt_command_gets_a_suggestion(run):
    result = run("lst")
    assert result.exit_code == 2
    assert "did you mean 'list'?" in result.stderr
    assert "'xyzzy' is not a command of dlq; there are groups, list, show, " in run("xyzzy").stderr


def test_importing_the_commands_is_cheap():
    # Celery does it for each of its own commands, on every start of a worker.
    heavy = (
        "sqlalchemy",
        "alembic",
        "rich",
        "celery_dlq.cli.letters.inspect",
        "celery_dlq.cli.redrive.command",
    )
    code = f"import sys, celery_dlq.cli; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_commands_in_output_name_the_app(app, store):
    @click.group()
    @click.option("-A", "--app", type=click.UNPROCESSED)
    @click.pass_context
    def celery(ctx, **_options):
        ctx.obj = CLIContext(app=app, no_color=False, workdir=None)

    celery.add_command(dlq)
    result = CliRunner().invoke(celery, ["-A", "my shop", "dlq", "show", "zzz"])
    assert result.stderr.endswith("see: celery -A 'my shop' dlq list\n")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (CeleryDLQError("x"), 1),
        (SettingsError("x"), 1),
        (FilterError("x"), 2),
        (OrdersError("x"), 2),
        (SchemaError("x"), 3),
        (StoreUnavailable("x"), 3),
    ],
)
def test_statuses(error, status):
    assert exits.status_of(error) == status


def guarded(act):
    """The result of a command that does ``act``, in a guarded group."""
    group = exits.GuardedGroup("dlq")
    group.command("do")(act)
    context = CLIContext(app=object(), no_color=True, workdir=None)
    return CliRunner().invoke(group, ["do"], obj=context)


def raising(error):
    def act():
        raise error

    return act


def test_an_error_is_one_line_without_control_characters():
    result = guarded(raising(CeleryDLQError("two\nlines \x1b[2J; next: do this.")))
    assert (result.exit_code, result.stderr) == (1, "Error: two lines \\x1b[2J; next: do this.\n")


def test_ctrl_c_exits_with_130_everywhere():
    result = guarded(raising(KeyboardInterrupt()))
    assert (result.exit_code, result.stderr) == (130, "Interrupted.\n")


def test_a_closed_pipe_is_not_an_error():
    result = guarded(raising(BrokenPipeError()))
    assert (result.exit_code, result.output) == (0, "")


def test_our_own_mistakes_are_not_hidden():
    assert isinstance(guarded(raising(ZeroDivisionError())).exception, ZeroDivisionError)


@pytest.mark.parametrize(("app", "named"), [("shop", "shop"), (None, "<app>")])
def test_an_error_names_commands_of_this_app(app, named):
    with click.Context(click.Command("celery")) as root:
        root.params["app"] = app
        with click.Context(click.Command("dlq"), parent=root):
            assert exits.for_app(str(StoreError())).endswith(f"celery -A {named} dlq doctor.")
