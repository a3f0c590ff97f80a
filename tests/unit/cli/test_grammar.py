"""One grammar for all commands: an option has one meaning, one kind of value, and one metavar."""

from collections import defaultdict
from functools import partial

import click
import pytest

from celery_dlq.cli import dlq

#: Options whose values differ between commands, with the reason.
DIFFERENT = {
    "--format": "groups show also prints a brief",
    "--state": "letters, operations, their messages and runs of handlers have states of their own",
}

#: Commands that change the letters that they choose.
ACTS = ("redrive", "discard", "delete", "unpark", "reclassify", "archive run", "archive restore")


def commands(command=dlq, path=()):
    """Each command with its words."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        yield from commands(command.get_command(context, name), (*path, name))


ALL = dict(commands())


def options_of(command):
    return [one for one in command.params if isinstance(one, click.Option) and not one.hidden]


def value_of(command, option):
    """The metavar of an option, or that it takes no value."""
    return "" if option.is_flag else option.make_metavar(click.Context(command))


def test_an_option_has_one_kind_of_value_in_all_commands():
    kinds = defaultdict(lambda: defaultdict(list))
    for name, command in ALL.items():
        for option in options_of(command):
            kinds[option.opts[0]][value_of(command, option)].append(name)
    several = {option: dict(found) for option, found in kinds.items() if len(found) > 1}
    assert set(several) == set(DIFFERENT), several


@pytest.mark.parametrize("name", ACTS)
def test_a_command_that_chooses_letters_asks_first(name):
    options = {option.opts[0] for option in options_of(ALL[name])}
    assert {"--all", "--dry-run", "--yes"} <= options
    assert {"--task", "--exception", "--group", "--since", "--until"} <= options


@pytest.mark.parametrize(
    ("metavar", "good", "bad"),
    [("DURATION", ("90s", "2h", "1d"), "2026-11-28"), ("TIME", ("2026-11-28T10:00:00+00:00",), "soon")],
)  # fmt: skip
def test_a_metavar_stands_for_one_form(metavar, good, bad):
    found = 0
    for command in ALL.values():
        context = click.Context(command)
        for option in options_of(command):
            if value_of(command, option).strip("[]") == metavar:
                read = partial(option.type_cast_value, context)
                callback = option.callback or (lambda _ctx, _param, value: value)
                for text in good:
                    assert callback(context, option, read(text)) is not None, option.opts
                with pytest.raises(click.UsageError):
                    callback(context, option, read(bad))
                found += 1
    assert found > 2
