"""How often threads take turns."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

#: Seconds for which a thread may go on while another one waits; Python's own are ten times as many. A claim
#: asks for its turn after every answer of the database, while a batch is being encoded.
TURN_S = 0.0005

_changing = threading.Lock()
#: How often turns are short just now, and how long they were before.
_short: list[float] = []


@contextlib.contextmanager
def short_turns() -> Iterator[None]:
    """Threads of this process take turns more often."""
    with _changing:
        _short.append(_short[0] if _short else sys.getswitchinterval())
        sys.setswitchinterval(min(TURN_S, _short[0]))
    try:
        yield
    finally:
        with _changing:
            before = _short.pop()
            if not _short:
                sys.setswitchinterval(before)
