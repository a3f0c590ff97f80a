"""The checks of every play, for the test files of the brokers."""

from __future__ import annotations

from matrix.mode import Mode, Place
from matrix.run import Theatre, note


def check_end(theatre: Theatre, play: tuple[str, str, str], mode: Mode) -> None:
    """The message came to its one end."""
    _, broker, pool = play
    seen = theatre.play(*play).seen[mode.id]
    note(mode, broker, pool, seen)
    end = mode.end_on(broker, pool)
    assert end.holds(seen), f"expected {end}, seen {seen}"


def check_whole(theatre: Theatre, play: tuple[str, str, str]) -> None:
    """Nothing is left over: no other letter, no alarm, and no message on the queue, with a worker, or in the
    flight recorder."""
    _, broker, pool = play
    played = theatre.play(*play)
    letters = sum(mode.end_on(broker, pool).place is Place.LETTER for mode in played.modes)
    assert (played.letters, played.left_on_queue, played.alarms) == (letters, 0, ())
    assert played.left_in_recorder == 0
