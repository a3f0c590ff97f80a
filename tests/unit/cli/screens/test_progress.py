import pytest
from celery.bin.base import CLIContext
from click.testing import CliRunner
from support.clock import Clock

from celery_dlq.cli.screens.progress import Speed, Step, shown_progress


def put_out(updates, *, quiet=False, no_color=False):
    """The output on stderr after ``updates`` of (sent, skipped) of 200."""
    cli = CLIContext(app=object(), no_color=no_color, workdir=None, quiet=quiet)
    with CliRunner().isolation() as (stdout, stderr, _both):
        with shown_progress(cli, "Redriving") as update:
            for sent, skipped in updates:
                done, note = sent + skipped, f"{skipped} skipped"
                update(Step(total=200, done=done, short=note, long=f"{sent} sent, {note}"))
        assert stdout.getvalue() == b""
        return stderr.getvalue().decode()


def test_a_pipe_gets_a_line_per_tenth():
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


def test_a_closed_stderr_does_not_stop_the_command(monkeypatch):
    refused = []

    class Deaf(CLIContext):
        def error(self, message=None, **kwargs):
            refused.append(message)
            raise BrokenPipeError

    with shown_progress(Deaf(app=object(), no_color=False, workdir=None), "Redriving") as update:
        update(Step(total=1, done=1, short="", long=""))
    assert refused


@pytest.fixture
def clock():
    return Clock()


def grown(clock, steps):
    """A speed after ``steps`` of (seconds since the start, count)."""
    speed = Speed(clock)
    for clock.now, count in steps:
        speed.note(count)
    return speed


@pytest.mark.parametrize("steps", [[], [(0, 0)], [(5, 3)], [(5, 3), (5, 9)]])
def test_a_speed_needs_two_moments(clock, steps):
    speed = grown(clock, steps)
    assert (speed.per_second, speed.left_s(10)) == (0.0, None)


def test_steady_growth(clock):
    speed = grown(clock, [(second, 50 * second) for second in range(100)])
    assert speed.per_second == pytest.approx(50)
    assert speed.left_s(500) == pytest.approx(10)


def test_earlier_progress_does_not_count(clock):
    assert grown(clock, [(0, 900), (10, 1000)]).per_second == pytest.approx(10)


def test_a_change_of_speed_shows_soon(clock):
    slow = [(second, second) for second in range(60)]
    fast = [(60 + second, 60 + 100 * second) for second in range(20)]
    assert grown(clock, slow + fast).per_second == pytest.approx(100)


def test_without_progress_there_is_no_remaining_time(clock):
    speed = grown(clock, [(0, 0), (1, 10), (30, 10), (60, 10)])
    assert (speed.per_second, speed.left_s(5)) == (0.0, None)
