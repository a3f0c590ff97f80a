"""No command answers differently to a secret than to another text. Commands and options come from click, so
that a new option is asked, too."""

import click
import pytest
from support.stores.oracles import questions, without
from support.stores.planted_secrets import plant

from celery_dlq.cli import dlq

#: Commands that are not asked, each with the reason.
NOT_ASKED = {
    "auto": "it pauses, and says later that it has",
    "edit": "it shows the message as it is",
    "db": "it reads no letters",
    "exporter": "it serves until it is stopped",
    "help": "it reads no letters",
    "ingest": "it needs a broker",
    "recorder": "it reads files of workers",
    "watch": "it runs until it is stopped",
    "forget": "it searches the messages as they are, which it erases",
}


def commands(group=dlq, before=()):
    """The commands, each with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command, words = group.get_command(context, name), (*before, name)
        if isinstance(command, click.Group):
            yield from commands(command, words)
        elif words[0] not in NOT_ASKED:
            yield words, command


def is_text(parameter):
    return isinstance(
        parameter.type, (click.types.StringParamType, click.types.UnprocessedParamType)
    )


def calls(words, command):
    """The command with each of its texts in turn; ``{}`` stands for the text."""
    flags = ["--dry-run"] if any("--dry-run" in one.opts for one in command.params) else []
    for one in command.params:
        if is_text(one) and isinstance(one, click.Argument):
            yield [*words, "{}", *flags]
        elif is_text(one) and not one.is_flag:
            yield [*words, one.opts[0], "{}", *flags]


CASES = [call for words, command in commands() for call in calls(words, command)]


@pytest.fixture
def planted(store):
    plant(store)


@pytest.mark.parametrize("place", range(4))
def test_no_option_says_more_about_a_secret_than_about_another_text(run, planted, place):
    """In four parts, which processes share. The calls of a part share a store, which none of them changes."""
    stored = run("list", "--format", "json").output
    answers = [
        (" ".join(call), pair, [answer(run, call, text) for text in pair])
        for call in CASES[place::4]
        for pair in questions()
    ]
    assert [(call, pair) for call, pair, (told, other) in answers if told != other] == []
    assert run("list", "--format", "json").output == stored


def answer(run, call, text):
    """The exit status, and the output without the text that was asked for."""
    result = run(*(word.format(text) for word in call))
    return result.exit_code, without(result.output, text)


@pytest.mark.parametrize("text", ["cannot reach", "shop:[redacted]@db"])
def test_what_is_shown_is_found(run, planted, text):
    assert "5ec4e7aa" in run("list", "--search", text).output
    assert "5ec4e7aa" not in run("list", "--search", f"{text}#").output


def test_the_options_are_those_of_the_commands():
    asked = {tuple(call) for call in CASES}
    assert {
        ("list", "--search", "{}"),
        ("list", "--value", "{}"),
        ("list", "--arg", "{}"),
    } <= asked
    assert len(CASES) > 100
