"""A TCP proxy before a server, to make it slow, frozen or gone for one client."""

from __future__ import annotations

import contextlib
import socket
import threading

from celery_dlq.drill import place


class _Link:
    """One connection of a client."""

    def __init__(self, client: socket.socket) -> None:
        self.client, self.flows = client, threading.Event()
        self.flows.set()


class Proxy(place.Proxy):
    """Passes connections on to a server, until it has to hold them or to cut them off.

    :param mark: marks each connection on which the client sends these bytes; :meth:`freeze` is about these.
    """

    def __init__(self, host: str, port: int, *, mark: bytes = b"") -> None:
        self._mark = mark
        self._marked: set[_Link] = set()
        self._frozen: set[_Link] = set()
        self._flows, self._answers = threading.Event(), threading.Event()
        self._flows.set()
        self._answers.set()
        super().__init__(host, port)

    def hold(self) -> None:
        """Accept connections and keep them open, but pass nothing on."""
        self._flows.clear()

    def mute(self) -> None:
        """Pass on what clients send, but hold the answers."""
        self._answers.clear()

    def flow(self) -> None:
        """Pass on the data that was held, and everything after it."""
        self._flows.set()
        self._answers.set()

    def freeze(self) -> int:
        """Pass nothing on for the marked connections that are open; returns their number. New connections are
        passed on."""
        self._frozen = set(self._marked)
        for link in self._frozen:
            link.flows.clear()
        return len(self._frozen)

    def thaw(self) -> None:
        """Pass on the data that frozen connections held, and everything after it."""
        frozen, self._frozen = self._frozen, set()
        for link in frozen:
            link.flows.set()

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        super().cut()
        self.thaw()
        self.flow()

    def _link(self, client: socket.socket, server: socket.socket) -> None:
        link = _Link(client)
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=self._pass, args=(link, source, target), daemon=True).start()

    def _pass(self, link: _Link, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if source is link.client and self._mark and self._mark in data:
                    self._marked.add(link)
                self._flows.wait()
                link.flows.wait()
                if source is not link.client:
                    self._answers.wait()
                target.sendall(data)
        self._marked.discard(link)
        # The other direction's thread closes the other end, once it has noticed.
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
        source.close()
