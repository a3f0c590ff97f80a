"""How a process is set while it redrives: how often its threads take turns, and when it looks for garbage."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Iterator
from typing import NamedTuple

#: Seconds for which a thread may go on while another one waits; Python's own are ten times as many. A claim
#: asks for its turn after every answer of the database, while a batch is being encoded.
TURN_S = 0.0005

#: Objects that are there more than at the last look for garbage, when the next one is due; Python's own are
#: a few hundreds. The letters of some batches are fewer: looking through them, again and again, and through
#: all else that the process holds, found nothing, in a sixth of a redrive's time.
OBJECTS = 100_000


class _Tuning(NamedTuple):
    turn_s: float
    thresholds: tuple[int, int, int]

    def apply(self) -> None:
        sys.setswitchinterval(self.turn_s)
        gc.set_threshold(*self.thresholds)


_changing = threading.Lock()
#: How the process was set before, once for each redrive that is under way.
_before: list[_Tuning] = []


@contextlib.contextmanager
def tuned() -> Iterator[None]:
    """Threads of this process take turns more often, and it looks for garbage less often."""
    with _changing:
        _before.append(_before[0] if _before else _found())
        _for_redrives(_before[0]).apply()
    try:
        yield
    finally:
        with _changing:
            before = _before.pop()
            if not _before:
                before.apply()


def _found() -> _Tuning:
    return _Tuning(sys.getswitchinterval(), gc.get_threshold())


def _for_redrives(found: _Tuning) -> _Tuning:
    youngest, older, oldest = found.thresholds
    # 0 is a process that never wants to look.
    objects = max(OBJECTS, youngest) if youngest else 0
    return _Tuning(min(TURN_S, found.turn_s), (objects, older, oldest))
