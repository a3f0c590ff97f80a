from celery.bin.base import CLIContext
from click.testing import CliRunner

from celery_dlq.cli.progress import Step, shown_progress


def put_out(updates, *, quiet=False, no_color=False):
    """What is on stderr after ``updates`` of (sent, skipped) of 200."""
    cli = CLIContext(app=object(), no_color=no_color, workdir=None, quiet=quiet)
    with CliRunner().isolation() as (stdout, stderr, _both):
        with shown_progress(cli, "Redriving") as update:
            for sent, skipped in updates:
                done, note = sent + skipped, f"{skipped} skipped"
                update(Step(total=200, done=done, short=note, long=f"{sent} sent, {note}"))
        assert stdout.getvalue() == b""
        return stderr.getvalue().decode()


def test_a_pipe_gets_a_line_for_each_tenth():
    updates = [(sent, 0) for sent in range(191)] + [(190, 10)]
    lines = put_out(updates).splitlines()
    assert len(lines) == 10
    assert lines[0] == "20 of 200: 20 sent, 0 skipped"
    assert lines[-1] == "200 of 200: 190 sent, 10 skipped"


def test_quiet_gets_nothing():
    assert put_out([(100, 0)], quiet=True) == ""


def test_a_terminal_gets_a_bar(terminal):
    terminal.sit_down(width=120)
    out = put_out([(100, 7)], no_color=True)
    assert "107/200" in out
    assert "7 skipped" in out
    assert "\x1b[3" not in out


def test_a_reader_that_went_away_does_not_stop_the_command(monkeypatch):
    class Deaf(CLIContext):
        def error(self, message=None, **kwargs):
            raise BrokenPipeError

    with shown_progress(Deaf(app=object(), no_color=False, workdir=None), "Redriving") as update:
        update(Step(total=1, done=1, short="", long=""))
