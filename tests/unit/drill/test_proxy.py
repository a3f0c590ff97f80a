"""The proxy that cuts the connections of a drill."""

import contextlib
import socket
import threading

import pytest

from celery_dlq.drill.place import Proxy


@pytest.fixture
def echo():
    """The port of a server that answers with what it gets."""

    def serve():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(client,), daemon=True).start()

    def answer(client):
        with client, contextlib.suppress(OSError):
            while data := client.recv(100):
                client.sendall(data)

    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def asked(port, text=b"hello"):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(text)
        return client.recv(100)


def test_connections_pass_until_they_are_cut_and_again_afterwards(echo):
    proxy = Proxy("127.0.0.1", echo)
    with contextlib.closing(proxy):
        assert asked(proxy.port) == b"hello"
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as open_one:
            open_one.sendall(b"before")
            assert open_one.recv(100) == b"before"
            proxy.cut()
            assert open_one.recv(100) == b""
        with pytest.raises(ConnectionRefusedError):
            asked(proxy.port)
        port = proxy.port
        proxy.restore()
        assert proxy.port == port
        assert asked(port) == b"hello"


def test_a_server_that_is_away_closes_the_connection_and_not_the_proxy(echo):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = closed.getsockname()[1]
    with contextlib.closing(Proxy("127.0.0.1", gone)) as proxy:
        for _ in range(2):
            with contextlib.suppress(ConnectionResetError):
                assert asked(proxy.port) == b""
