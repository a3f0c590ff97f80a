"""What a ticket says, and that nothing in a letter breaks out of it."""

import re
import shlex
from datetime import timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from support.factories import T0, attempt, letter

from celery_dlq.tickets.text import TITLE_LIMIT, TRACEBACK_LIMIT, text_about

#: The parts of a ticket, as a parser of Markdown names them.
PLAIN = {"paragraph_open", "inline", "paragraph_close", "fence"}
INTRODUCTION = "A group of dead letters has this ticket. One of its letters:"

HOSTILE = (
    "```\n</code></pre>\n/close\n@everyone {noformat} {NoFormat} {noformat:title=x} { noformat }\n````\n~~~\n"
    "# title [~ann] \u202eevil\x00\r\x1b[31m"
)


def test_it_names_what_a_person_needs():
    earlier = T0.astimezone(timezone(timedelta(hours=2)))
    stored = letter("0d3f", attempt(failed_at=earlier), attempt(2, minutes=5), release="")
    text = text_about(stored, "shop")
    assert text.title == "shop.charge: ValueError: bad currency"
    assert text.facts == (
        "Group: 9c1e0000deadbeef\n"
        "Letter: 0d3f\n"
        "Task: shop.charge\n"
        "Exception: ValueError\n"
        "Reason: terminal\n"
        "First failure: 2026-11-21 12:00:00 UTC\n"
        "Last failure: 2026-11-21 12:05:00 UTC\n"
        "Worker: celery@host"
    )
    assert text.commands == (
        "celery -A shop dlq groups show 9c1e0000deadbeef",
        "celery -A shop dlq show 0d3f",
    )
    assert text.failure == "Traceback (most recent call last):\nValueError: bad currency"


def test_without_an_app_the_commands_have_a_place_for_it():
    assert text_about(letter(), "").commands[1] == "celery -A <app> dlq show 0d3f"


def test_the_title_has_the_first_line_of_the_message_and_is_clipped():
    long = letter(message=f"\nfirst {'x' * 500}\nsecond")
    title = text_about(long, "").title
    assert len(title) <= TITLE_LIMIT
    assert title.startswith("shop.charge: ValueError: first xxx")
    assert title.endswith("more characters]")
    assert text_about(letter(message="first\nsecond"), "").title.endswith(": first")
    assert text_about(letter(exception_type="", message=""), "").title == "shop.charge"


def test_a_long_traceback_keeps_its_beginning_and_its_end():
    text = text_about(letter(traceback=f"entry\n{'x' * 50_000}\ncause"), "").failure
    assert text.startswith("entry")
    assert text.endswith("cause")
    assert len(text) < TRACEBACK_LIMIT + 100


def test_a_letter_without_a_traceback_shows_its_message():
    assert text_about(letter(traceback="", message="killed"), "").failure == "killed"
    bare = text_about(letter(traceback="", message=""), "")
    assert bare.markdown().count("```") == 4
    assert bare.wiki().count("{noformat}") == 4


def test_in_markdown():
    assert text_about(letter(release="1.4.2"), "shop").markdown() == (
        "A group of dead letters has this ticket. One of its letters:\n"
        "\n"
        "```\n"
        "Group: 9c1e0000deadbeef\n"
        "Letter: 0d3f\n"
        "Task: shop.charge\n"
        "Exception: ValueError\n"
        "Reason: terminal\n"
        "First failure: 2026-11-21 12:00:00 UTC\n"
        "Last failure: 2026-11-21 12:00:00 UTC\n"
        "Release: 1.4.2\n"
        "Worker: celery@host\n"
        "```\n"
        "\n"
        "```\n"
        "celery -A shop dlq groups show 9c1e0000deadbeef\n"
        "celery -A shop dlq show 0d3f\n"
        "```\n"
        "\n"
        "```\n"
        "Traceback (most recent call last):\n"
        "ValueError: bad currency\n"
        "```"
    )


def outside_code(markdown):
    """The texts of Markdown outside its code; fails if there is anything else, such as a link or HTML."""
    left = []
    for token in MarkdownIt("commonmark").parse(markdown):
        assert token.type in PLAIN, token.type
        for part in token.children or ():
            assert part.type == "text", part.type
            left.append(part.content)
    return [text for text in left if text]


def test_nothing_breaks_out_of_markdown():
    made = text_about(
        letter(
            HOSTILE, task=HOSTILE, exception_type=HOSTILE, worker="`", release="``` @everyone",
            message=HOSTILE, traceback=HOSTILE,
        ),
        "shop",
    )  # fmt: skip
    assert outside_code(made.markdown()) == [INTRODUCTION]
    assert "\n" not in made.title
    for character in "\x00\x1b\r\u202e":
        assert character not in made.title + made.markdown() + made.wiki()


@settings(deadline=None)
@given(st.text(alphabet="`a~ \n{}noformat\r\x85\u2028", max_size=60), st.text(max_size=20))
def test_no_text_breaks_out(traceback, name):
    made = text_about(letter(traceback=traceback, task=name, worker=traceback), "shop")
    assert outside_code(made.markdown()) == [INTRODUCTION]
    blocks = made.wiki().count("{noformat}")
    assert blocks == 4 + 2 * bool(made.failure)
    assert len(re.findall(r"\{noformat", made.wiki(), re.IGNORECASE)) == blocks


def test_nothing_breaks_out_of_jiras_markup():
    wiki = text_about(letter(task=HOSTILE, traceback=HOSTILE), "shop").wiki()
    assert len(re.findall(r"\{\s?noformat", wiki, re.IGNORECASE)) > 6, "they are still to be read"
    assert re.findall(r"\{noformat[^}]*\}", wiki, re.IGNORECASE) == ["{noformat}"] * 6


@pytest.mark.parametrize("name", ["$(reboot)", "a; reboot", "`reboot`", "a\nreboot", "'a' || b"])
def test_a_command_is_safe_to_copy_into_a_shell(name):
    command = text_about(letter(name), "shop").commands[1]
    assert "\n" not in command
    assert shlex.split(command) == ["celery", "-A", "shop", "dlq", "show", " ".join(name.split())]
