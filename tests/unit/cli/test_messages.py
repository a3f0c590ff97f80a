"""The texts of commands, on any terminal."""

import pytest
from celery.bin.base import CLIContext
from click.testing import CliRunner
from support.factories import letter

from celery_dlq.cli import dlq
from celery_dlq.cli.session import Session

HOSTILE = "a\x1b[31mred"


@pytest.mark.parametrize("tell", [Session.done, Session.say, Session.error])
def test_no_message_controls_a_terminal(app, tell):
    with CliRunner().isolation() as (stdout, stderr, _both):
        tell(Session(CLIContext(app=app, no_color=True, workdir=None)), f"{HOSTILE}\nline")
        said = stdout.getvalue() + stderr.getvalue()
    assert said == b"a\\x1b[31mred\\nline\n"


@pytest.mark.parametrize(
    ("tell", "says"), [(Session.done, False), (Session.say, False), (Session.error, True)]
)
def test_only_errors_are_said_in_quiet(app, tell, says):
    with CliRunner().isolation() as (stdout, stderr, _both):
        tell(Session(CLIContext(app=app, no_color=True, workdir=None, quiet=True)), "text")
        said = stdout.getvalue() + stderr.getvalue()
    assert said == (b"text\n" if says else b"")


@pytest.mark.parametrize(("known", "said"), [(10, ""), (11, "Only the newest 10 are shown")])
def test_a_list_that_is_cut_off_is_said_to_be_so(app, known, said):
    with CliRunner().isolation() as (_stdout, stderr, _both):
        session = Session(CLIContext(app=app, no_color=True, workdir=None))
        session.say_if_more(known, 10)
        assert stderr.getvalue().decode().partition(";")[0] == said


def test_a_hostile_id_is_escaped_in_what_a_command_says(run, store):
    store.letters.save([letter(HOSTILE)])
    done = run("discard", "a", "--why", "x")
    assert done.exit_code == 0, done.stderr
    assert "To reopen it: celery dlq discard --undo 'a\\x1b[31mred'" in done.stdout
    again = run("discard", "a", "--why", "x")
    assert "a\\x1b[31mred is discarded and left alone" in again.stderr


def test_an_output_that_is_not_utf_8_gets_escapes(app, store):
    store.letters.save([letter("ä1")])
    context = CLIContext(app=app, no_color=True, workdir=None)
    done = CliRunner(charset="ascii").invoke(dlq, ["discard", "ä", "--why", "x"], obj=context)
    assert (done.exit_code, done.exception) == (0, None)
    assert (
        "Discarded 1 dead letter. To reopen it: celery dlq discard --undo '\\xe41'" in done.stdout
    )
