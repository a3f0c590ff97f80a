"""Stubs for the cases of this set: a small HTTP server with fixed answers, sockets that fail, and patches."""

import contextlib
import http.server
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time
import unittest.mock as mock
from urllib.parse import urlsplit

_sleep = time.sleep  # no_sleep() must not reach the servers
_REASONS = {509: "Bandwidth Limit Exceeded"}


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


def serve(answers, tls=None):
    """Start a server. answers: one tuple (status, body, headers, delay), or a function of (method, path)."""
    if not callable(answers):
        fixed = tuple(answers)
        answers = lambda method, path: fixed  # noqa: E731

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def answer(self):
            length = int(self.headers.get("Content-Length") or 0)
            if length:
                self.rfile.read(length)
            status, body, headers, delay = answers(self.command, self.path)
            if isinstance(body, str):
                body = body.encode()
            if delay:
                _sleep(delay)
            try:
                self.send_response(status, _REASONS.get(status))
                for key, value in (headers or {}).items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Connection", "close")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)
            except OSError:
                pass
            self.close_connection = True

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = answer

    server = _Server(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"


def answer(status, body=b"", headers=None, delay=0):
    headers = dict(headers or {})
    if body and "Content-Type" not in headers:
        first = (body if isinstance(body, str) else body.decode("latin1"))[:1]
        headers["Content-Type"] = "application/json" if first in "{[" else "text/html; charset=utf-8"
    return serve((status, body, headers, delay))


def closed_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def refused():
    return f"http://127.0.0.1:{closed_port()}"


def tcp(behave):
    """A TCP server that calls behave(connection) in a thread. Returns the port."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(16)

    def one(conn):
        try:
            behave(conn)
        except OSError:
            pass

    def loop():
        while True:
            conn, _ = listener.accept()
            threading.Thread(target=one, args=(conn,), daemon=True).start()

    threading.Thread(target=loop, daemon=True).start()
    return listener.getsockname()[1]


def _reset(conn):
    conn.recv(1)
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    conn.close()


def _close(conn):
    conn.recv(65536)
    conn.close()


def _silent(conn):
    _sleep(60)
    conn.close()


def reset_port():
    return tcp(_reset)


def closing_port():
    return tcp(_close)


def silent_port():
    return tcp(_silent)


def reset():
    return f"http://127.0.0.1:{reset_port()}"


def closing():
    return f"http://127.0.0.1:{closing_port()}"


def silent():
    return f"http://127.0.0.1:{silent_port()}"


_pem = None


def self_signed():
    """An https server with a certificate that nobody signed."""
    global _pem
    if _pem is None:
        _pem = tempfile.mkdtemp() + "/c.pem"
        subprocess.run(
            [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "30",
                "-subj",
                "/CN=localhost",
                "-addext",
                "subjectAltName=IP:127.0.0.1,DNS:localhost",
                "-keyout",
                _pem,
                "-out",
                _pem + ".crt",
            ],
            check=True,
            capture_output=True,
        )
        with open(_pem, "a") as f:
            f.write(open(_pem + ".crt").read())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_pem)
    return serve((200, b"{}", {}, 0), tls=context)


@contextlib.contextmanager
def no_sleep():
    """Waits between retries take no time."""
    with mock.patch("time.sleep", lambda seconds=0: None):
        yield


@contextlib.contextmanager
def requests_to(base, timeout=None):
    """Every request of the library `requests` goes to `base`, whatever host the client wrote."""
    import requests.adapters

    real = requests.adapters.HTTPAdapter.send

    def send(self, request, **kwargs):
        parts = urlsplit(request.url)
        rest = request.url.split(parts.netloc, 1)[1]
        request.url = base + (rest if rest.startswith("/") else "/" + rest)
        if timeout is not None:
            kwargs["timeout"] = timeout
        return real(self, request, **kwargs)

    with mock.patch.object(requests.adapters.HTTPAdapter, "send", send):
        yield


@contextlib.contextmanager
def unknown_host():
    """The name server says that the host name does not exist."""

    def fail(*args, **kwargs):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with mock.patch("socket.getaddrinfo", fail):
        yield
