"""Full jitter, in float seconds."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

#: Draws a float uniformly between two bounds.
Uniform = Callable[[float, float], float]

#: Not the module's own generator: tasks may seed that one, and forked processes may share its state, so
#: they would all draw the same waits.
uniform: Uniform = random.SystemRandom().uniform


def ceiling(attempt: int, base: float, cap: float) -> float:
    """The longest wait after ``attempt`` (1-based): ``min(cap, base * 2 ** (attempt - 1))`` seconds."""
    try:
        return min(cap, math.ldexp(base, attempt - 1))
    except OverflowError:
        return cap


def full_jitter(attempt: int, base: float, cap: float, draw: Uniform) -> float:
    """Seconds to wait after the failure of ``attempt`` (1-based), drawn from zero to the ceiling.

    Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015: of the variants compared
    there, full jitter makes the fewest calls, because it spreads clients over the whole interval.
    Celery's own helper has only whole seconds and raises the base to at least one.
    """
    return draw(0.0, ceiling(attempt, base, cap))
