"""Compares this machine's clock with the database's."""

from __future__ import annotations

from datetime import timedelta

#: Seconds of difference that are not reported. Answers of a busy database take a second or two.
TOLERATED_S = 5.0


def why_wrong(ahead: timedelta) -> str:
    """The error of this machine's clock, and the next step; empty if it agrees with the database's.

    :param ahead: how far the database's clock is ahead of this machine's.
    """
    seconds = ahead.total_seconds()
    if abs(seconds) <= TOLERATED_S:
        return ""
    side = "behind" if seconds > 0 else "ahead of"
    return (
        f"the clock of this machine is {abs(seconds):,.0f} seconds {side} the database's; workers write "
        "the times of failures by the clock of their machine, so lists and --since are wrong by as much; "
        "synchronise both machines with NTP and check with: timedatectl status"
    )
