"""Servers on this machine that answer as told, or misbehave."""

import http.server
import json
import socket
import socketserver
import struct
from urllib.parse import parse_qs, urlsplit


class Answering(http.server.BaseHTTPRequestHandler):
    """``/503?retry-after=7`` answers 503 with that header; CONNECT is refused with the path's host."""

    def do_GET(self):
        parts = urlsplit(self.path)
        self.send_response(int(parts.path.strip("/")))
        for name, values in parse_qs(parts.query).items():
            self.send_header(name, values[0])
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET

    def do_CONNECT(self):
        self.send_response(int(self.path.partition(".")[0]))
        self.end_headers()

    def log_message(self, *args):
        pass


class Misbehaving(socketserver.BaseRequestHandler):
    """Reads a request, then does what the server's ``manner`` says."""

    def handle(self):
        self.request.recv(65_536)
        self.server.manner(self.request)


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def hang_up(connection):
    connection.shutdown(socket.SHUT_RDWR)


def cut_off(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")


def say_nothing(connection):
    connection.recv(1)


def talk_nonsense(connection):
    connection.sendall(b"hello, this is no HTTP\r\n\r\n")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


class Told(http.server.BaseHTTPRequestHandler):
    """Answers every request as the server was told: status, headers and body."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        told = self.server.told
        body = told.body if self.command != "HEAD" else b""
        self.send_response(told.status)
        for name, value in told.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_HEAD = do_PATCH = do_DELETE = answer

    def log_message(self, *args):
        pass


class Answer:
    """What :class:`Told` answers. ``body`` may be bytes, text, or what becomes JSON."""

    def __init__(self, status, body=b"", content="application/json", **headers):
        if not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        self.status = status
        self.body = body.encode() if isinstance(body, str) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.headers = {"Content-Type": content, **named}
