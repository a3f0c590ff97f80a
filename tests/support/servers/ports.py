"""Ports of this machine for servers that are started later, or never."""

from __future__ import annotations

import contextlib
import random
import socket

#: Below those that kernels give to outgoing connections. One of those might be taken by any client on the
#: machine before its server listens; even by the one that tries it, for TCP then connects to itself.
_FIRST, _LAST = 20_000, 32_000

#: The process's generator begins each test with the same seed.
_random = random.SystemRandom()


def free_port() -> int:
    """A port of 127.0.0.1 on which nothing listens, and that only who asks for it gets."""
    while True:
        port = _random.randint(_FIRST, _LAST)
        with contextlib.suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            return port
