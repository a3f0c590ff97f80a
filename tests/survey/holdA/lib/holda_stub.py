"""Stubs for the cases: tiny servers on 127.0.0.1 with a fixed answer, and sockets that misbehave."""

import contextlib
import functools
import http.server
import json
import os
import socket
import struct
import subprocess
import tempfile
import threading
import time

os.environ["NO_PROXY"] = os.environ["no_proxy"] = "*"


def serve(*answers, seen=None):
    """A server that gives these answers in turn (the last one for ever): (status, body, headers).."""
    left = list(answers)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            size = int(self.headers.get("Content-Length") or 0)
            if size:
                self.rfile.read(size)
            if seen is not None:
                seen.append((self.command, self.path))
            status, body, headers = left.pop(0) if len(left) > 1 else left[0]
            if not isinstance(body, (bytes, str)):
                body, headers = json.dumps(body), {"Content-Type": "application/json", **headers}
            data = body.encode() if isinstance(body, str) else body
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)
            self.close_connection = True

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = answer

        def log_message(self, *a):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *a: None
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


def answer(status, body="", **headers):
    return serve((status, body, {k.replace("_", "-"): v for k, v in headers.items()}))


def closed():
    """The address of a port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{s.getsockname()[1]}"


def _listener(talk):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", 0))
    s.listen(16)

    def loop():
        while True:
            conn, _ = s.accept()
            threading.Thread(target=talk, args=(conn,), daemon=True).start()

    threading.Thread(target=loop, daemon=True).start()
    return f"http://127.0.0.1:{s.getsockname()[1]}"


def resets():
    """A server that reads the request and then resets the connection."""

    def talk(conn):
        conn.recv(10)
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        conn.close()

    return _listener(talk)


def hangs_up():
    """A server that reads the request and closes without an answer."""

    def talk(conn):
        conn.settimeout(0.2)
        with contextlib.suppress(OSError):
            while conn.recv(65536):
                pass
        conn.close()

    return _listener(talk)


def silent():
    """A server that takes the connection and never answers."""
    return _listener(lambda conn: time.sleep(60))


def port(address):
    return int(address.rsplit(":", 1)[1])


@functools.lru_cache
def self_signed():
    """A TLS server with a certificate that nobody trusts."""
    import ssl

    folder = tempfile.mkdtemp()
    cert, key = f"{folder}/c.pem", f"{folder}/k.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            key,
            "-out",
            cert,
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=IP:127.0.0.1,DNS:localhost",
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    def talk(conn):
        with contextlib.suppress(OSError):
            context.wrap_socket(conn, server_side=True).close()

    return _listener(talk).replace("http:", "https:")


@contextlib.contextmanager
def no_such_host():
    """Every host name is unknown to the resolver (EAI_NONAME), whatever the network of this machine says."""
    real = socket.getaddrinfo

    def lookup(host, *a, **k):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    socket.getaddrinfo = lookup
    try:
        yield
    finally:
        socket.getaddrinfo = real


@contextlib.contextmanager
def rerouted(address, timeout=None):
    """requests: every request goes to the stub at this address, whatever its host is."""
    import requests.adapters
    from urllib.parse import urlsplit

    real = requests.adapters.HTTPAdapter.send

    def send(self, request, **kw):
        original, parts = request.url, urlsplit(request.url)
        request.url = address + (parts.path or "/") + ("?" + parts.query if parts.query else "")
        if timeout:
            kw["timeout"] = timeout
        try:
            response = real(self, request, **kw)
        finally:
            request.url = original
        response.url = original
        return response

    requests.adapters.HTTPAdapter.send = send
    try:
        yield
    finally:
        requests.adapters.HTTPAdapter.send = real


def within(context, function):
    """A function that calls `function` inside `context()`."""

    def run():
        with context():
            return function()

    return run
