import io
import os
import pty
import termios

import pytest

from celery_dlq.cli import keys
from celery_dlq.cli.keys import pressed_keys


@pytest.fixture
def keyboard():
    """The end that types, and a terminal that is typed on."""
    typing, typed_on = pty.openpty()
    with os.fdopen(typed_on) as terminal:
        yield typing, terminal
    os.close(typing)


def test_a_key_counts_without_enter(keyboard):
    typing, terminal = keyboard
    with pressed_keys(terminal) as key:
        os.write(typing, b"xq")
        assert [key(60), key(60), key(0)] == ["x", "q", ""]


def test_the_terminal_is_as_it_was_afterwards(keyboard):
    _, terminal = keyboard
    before = termios.tcgetattr(terminal)
    within = []

    def interrupted():
        with pressed_keys(terminal):
            within.append(termios.tcgetattr(terminal))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert within != [before]
    assert termios.tcgetattr(terminal) == before


def test_where_there_is_no_keyboard_only_time_passes(monkeypatch):
    slept = []
    monkeypatch.setattr(keys.time, "sleep", slept.append)
    with pressed_keys(io.StringIO("q")) as key:
        assert key(0.7) == ""
    assert slept == [0.7]
