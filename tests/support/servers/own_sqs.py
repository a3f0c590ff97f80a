"""A stand-in for Amazon SQS (moto) in a process of its own, and a server before it that notes each request,
and answers some of them itself as the cloud would."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from support.servers.ports import free_port
from support.workers.processes import with_parent

REGION, KEY, SECRET = "eu-west-1", "shop", "s3cret"

#: Seconds within which it listens on a busy machine.
_STARTS_S = 120

#: What an error of SQS is called in the protocol of boto3.
THROTTLED = "ThrottlingException", "Rate exceeded"
EXPIRED = "ExpiredToken", "The security token included in the request is expired"


def url_of(port: int) -> str:
    """Its URL for Celery."""
    return f"sqs://{KEY}:{SECRET}@127.0.0.1:{port}"


@contextlib.contextmanager
def own_sqs() -> Iterator[int]:
    """Its port. It keeps nothing on disk."""
    pytest.importorskip("moto.server")
    pytest.importorskip("pycurl")
    port = free_port()
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "moto.server",
        "-H",
        "127.0.0.1",
        "-p",
        str(port),
    ]
    with subprocess.Popen(
        with_parent(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _wait_for(port, process)
            yield port
        finally:
            process.terminate()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _STARTS_S
    while True:
        assert process.poll() is None, "moto has ended"
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/moto-api/")
            connection.getresponse().read()
            connection.close()
            return
        assert time.monotonic() < deadline, "moto does not listen"
        time.sleep(0.05)


def client_of(port: int) -> Any:
    """boto3's client of the stand-in, to be closed."""
    import boto3

    return boto3.client(
        "sqs", endpoint_url=f"http://127.0.0.1:{port}", region_name=REGION,
        aws_access_key_id=KEY, aws_secret_access_key=SECRET,
    )  # fmt: skip


#: Called with an action and its fields; the error to answer with, or None to pass it on.
Refuses = Callable[[str, dict[str, Any]], "tuple[str, str] | None"]


class Front:
    """Stands before the stand-in on ``port``."""

    def __init__(self, behind: int) -> None:
        #: The actions that were asked for.
        self.asked: Counter[str] = Counter()
        self.refuses: Refuses = lambda *_: None
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"front": self, "behind": behind})
        self._server = ThreadingHTTPServer(("127.0.0.1", free_port()), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def note(self, action: str, fields: dict[str, Any]) -> tuple[str, str] | None:
        with self._lock:
            self.asked[action] += 1
            return self.refuses(action, fields)

    @contextlib.contextmanager
    def refusing(self, refuses: Refuses) -> Iterator[None]:
        """Within this block, it answers as ``refuses`` says."""
        before, self.refuses = self.refuses, refuses
        try:
            yield
        finally:
            self.refuses = before

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    front: Front
    behind: int
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        action = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
        refused = self.front.note(action, json.loads(body or "{}"))
        if refused is None:
            self._pass(body)
            return
        code, message = refused
        self._answer(400, json.dumps({"__type": code, "message": message}).encode(), {})

    def _pass(self, body: bytes) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.behind, timeout=60)
        try:
            # With the host as it is, which becomes a part of the queues' URLs.
            left_out = ("connection", "content-length", "expect")
            headers = {k: v for k, v in self.headers.items() if k.lower() not in left_out}
            connection.request("POST", self.path, body, headers)
            answer = connection.getresponse()
            kept = {"Content-Type": answer.headers.get("Content-Type", "")}
            self._answer(answer.status, answer.read(), kept)
        finally:
            connection.close()

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        with contextlib.suppress(OSError):  # a worker that ends does not wait for it
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
