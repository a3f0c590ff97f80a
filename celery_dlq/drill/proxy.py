"""What cuts the drill's own connections: a small TCP proxy before a server, or the lock of a file."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import threading


class Proxy:
    """Passes connections on to a server, until they are cut."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._sockets: list[socket.socket] = []
        self.port = 0
        self.restore()

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        # Closing alone does not wake a thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        self.sever()

    def sever(self) -> None:
        """Break all connections; accept new ones."""
        broken, self._sockets = self._sockets, []
        for one in broken:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Cut it for ever."""
        self.cut()

    def restore(self) -> None:
        """Accept connections, on the port that it had before."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server, timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            self._sockets += (client, server)
            self._link(client, server)

    def _link(self, client: socket.socket, server: socket.socket) -> None:
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=_pass, args=(source, target), daemon=True).start()


def _pass(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    # The other direction's thread closes the other end, once it has noticed.
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
    source.close()


class FileLock:
    """Locks an SQLite file, so that no other process can write to it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def cut(self) -> None:
        """Lock it."""
        self._connection = sqlite3.connect(self._path, isolation_level=None)
        self._connection.execute("BEGIN EXCLUSIVE")

    def restore(self) -> None:
        """Unlock it."""
        self._connection.close()
