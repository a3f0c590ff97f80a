"""A TCP proxy before a server, to make it slow, frozen or gone for one client."""

from __future__ import annotations

import contextlib
import socket
import threading

from support.servers.ports import free_port


class _Link:
    """One connection of a client."""

    def __init__(self, client: socket.socket) -> None:
        self.client, self.flows = client, threading.Event()
        self.flows.set()


class Proxy:
    """Passes connections on to a server, until it has to hold them or to cut them off.

    :param mark: marks each connection on which the client sends these bytes; :meth:`freeze` is about these.
    """

    def __init__(self, host: str, port: int, *, mark: bytes = b"") -> None:
        self._server, self._mark = (host, port), mark
        self._marked: set[_Link] = set()
        self._frozen: set[_Link] = set()
        self._flows = threading.Event()
        self._flows.set()
        self._sockets: list[socket.socket] = []
        self.port = free_port()
        self.restore()

    def hold(self) -> None:
        """Accept connections and keep them open, but pass nothing on."""
        self._flows.clear()

    def flow(self) -> None:
        """Pass on the data that was held, and everything after it."""
        self._flows.set()

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
        # Closing alone does not wake a thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        self.sever()
        self.thaw()
        self._flows.set()

    def sever(self) -> None:
        """Break all connections; accept new ones, and pass them on."""
        broken, self._sockets = self._sockets, []
        for one in broken:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def restore(self) -> None:
        """Accept connections again."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._start()

    def close(self) -> None:
        self.cut()

    def _start(self) -> None:
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            self._sockets.extend((client, server))
            link = _Link(client)
            for source, target in ((client, server), (server, client)):
                threading.Thread(
                    target=self._pass, args=(link, source, target), daemon=True
                ).start()

    def _pass(self, link: _Link, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if source is link.client and self._mark and self._mark in data:
                    self._marked.add(link)
                self._flows.wait()
                link.flows.wait()
                target.sendall(data)
        self._marked.discard(link)
        # The other direction's thread closes the other end, once it has noticed.
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
        source.close()
