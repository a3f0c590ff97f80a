"""The standard library's exceptions, raised by what raises them."""

import asyncio
import concurrent.futures
import errno
import multiprocessing
import os
import queue
import socket
import sqlite3
import ssl
import subprocess
import sys
from concurrent.futures import BrokenExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing

import pytest
from support.errors.verdicts import judge, raised
from support.servers.ports import free_port

# -- files and sockets ----------------------------------------------------------------------------


def test_files(tmp_path):
    for name in ("missing/file", "."):
        assert judge(raised(open, tmp_path / name)) == ("terminal", "os.file")
    assert judge(raised(os.rmdir, tmp_path.parent))[0] == "terminal"
    assert judge(raised(os.kill, 2**22 - 1, 0)) == ("terminal", "os.errno")


def test_sockets():
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        address = listening.getsockname()
        assert judge(raised(socket.create_connection, address)) == ("transient", "os.network")
        with closing(socket.socket()) as second:
            assert judge(raised(second.bind, address)) == ("transient", "os.errno")
            assert judge(raised(second.getpeername)) == ("transient", "os.errno")
            second.setblocking(False)
            listening.listen()
            assert judge(raised(second.connect, address)) == ("transient", "os.interrupted")
        listening.settimeout(0.001)
        assert judge(raised(socket.socket.recv, listening, 1)) == ("transient", "os.errno")


PASSING_ERRNOS = (
    "ECONNREFUSED ECONNRESET ECONNABORTED EPIPE ETIMEDOUT EHOSTUNREACH ENETUNREACH ENETDOWN "
    "EHOSTDOWN ENETRESET ENOBUFS EAGAIN EINTR ENOTCONN EMFILE ENFILE ENOMEM ENOSPC EDQUOT EBUSY "
    "ESTALE EADDRNOTAVAIL EADDRINUSE ETXTBSY"
)
LASTING_ERRNOS = (
    "ENOENT EACCES EPERM EISDIR ENOTDIR EEXIST EINVAL EROFS ENOTEMPTY ENAMETOOLONG EBADF ESRCH "
    "ENXIO EXDEV ELOOP"
)


@pytest.mark.parametrize(
    ("name", "verdict"),
    [(name, "transient") for name in PASSING_ERRNOS.split()]
    + [(name, "terminal") for name in LASTING_ERRNOS.split()],
)
def test_errnos(name, verdict):
    code = getattr(errno, name)
    assert judge(OSError(code, "x"))[0] == verdict
    # Unlike the errno, its words mean nothing.
    assert judge(OSError(os.strerror(code)))[1] == "default"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Server unexpectedly closed connection", ("transient", "os.closed")),
        ("Socket closed", ("transient", "os.closed")),
        ("cannot read from timed out object", ("transient", "os.closed")),
        (
            "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), "
            "[Errno 113] Connect call failed ('10.0.0.1', 1)",
            ("transient", "os.errno"),
        ),
        ("Multiple exceptions: [Errno 111] x, [Errno 22] y", ("terminal", "os.errno")),
        ("Multiple exceptions: none", ("terminal", "os.errno")),
        ("Tunnel connection failed: 407 Proxy Authentication Required", ("terminal", "http.proxy")),
        ("Tunnel connection failed: 503 Service Unavailable", ("transient", "http.proxy")),
        ("Not a Multiple exceptions: [Errno 111]", ("terminal", "default")),
        ("connection refused", ("terminal", "default")),
    ],
)
def test_bare_os_errors_with_a_known_text(text, expected):
    assert judge(OSError(text)) == expected
    derived = type("Derived", (OSError,), {"__module__": "shop"})
    assert judge(derived(text)) == ("terminal", "default")


def test_both_addresses_of_a_host_refuse():
    async def connect():
        port = free_port()
        loop = asyncio.get_running_loop()
        addresses = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{n}", port)) for n in (1, 2)
        ]

        async def both(*args, **kwargs):
            return addresses

        loop.getaddrinfo = both
        await loop.create_connection(asyncio.Protocol, "anything", port)

    assert judge(raised(asyncio.run, connect()))[0] == "transient"


# -- Python itself ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda: int("x"),
        lambda: b"\xff".decode(),
        lambda: {}["x"],
        lambda: [][0],
        lambda: None.x,
        lambda: None + 1,
        lambda: 1 / 0,
        lambda: undefined,  # noqa: F821 - the NameError is the point
        lambda: __import__("no_such_module_at_all"),
        lambda: compile("(", "x", "exec"),
        lambda: memoryview(bytearray(1)).release() or bytearray().pop(),
    ],
)
def test_bugs_and_bad_input(function):
    assert judge(raised(function)) == ("terminal", "python.error")


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_exits(kind):
    assert judge(kind()) == ("terminal", "python.exit")


def test_cancellation_and_memory():
    assert judge(asyncio.CancelledError()) == ("terminal", "python.exit")
    assert judge(concurrent.futures.CancelledError()) == ("terminal", "python.exit")
    assert judge(MemoryError()) == ("terminal", "python.memory")


# -- waiting for others -----------------------------------------------------------------------------


def test_timeouts():
    async def late():
        await asyncio.wait_for(asyncio.Event().wait(), 0)

    assert judge(raised(asyncio.run, late())) == ("transient", "os.network")
    assert judge(raised(concurrent.futures.Future().result, 0)) == ("transient", "os.network")
    assert judge(multiprocessing.TimeoutError()) == ("transient", "multiprocessing.timeout")


def test_queues_and_streams():
    full = queue.Queue(1)
    full.put(1)
    assert judge(raised(full.put_nowait, 2)) == ("transient", "queue.full")

    async def read():
        reader = asyncio.StreamReader()
        reader.feed_eof()
        await reader.readexactly(3)

    assert judge(raised(asyncio.run, read())) == ("transient", "asyncio.closed")


def test_a_broken_pool():
    for kind in (BrokenExecutor, BrokenProcessPool):
        assert judge(kind("a process died")) == ("terminal", "futures.broken")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import sys; sys.exit(1)", ("terminal", "subprocess.exit_code")),
        ("import sys; sys.exit(75)", ("transient", "subprocess.exit_code")),
    ],
)
def test_exit_codes(code, expected):
    assert judge(raised(subprocess.run, [sys.executable, "-c", code], check=True)) == expected


def test_a_subprocess_that_takes_too_long():
    waiting = [sys.executable, "-c", "input()"]
    with subprocess.Popen(waiting, stdin=subprocess.PIPE) as process:
        exc = raised(process.wait, timeout=0.001)
        process.kill()
    assert judge(exc) == ("transient", "subprocess.timeout")


# -- SQLite ---------------------------------------------------------------------------------------


@pytest.fixture
def two_connections(tmp_path):
    path = tmp_path / "shop.sqlite3"
    with (
        closing(sqlite3.connect(path, timeout=0)) as one,
        closing(sqlite3.connect(path, timeout=0)) as two,
    ):
        one.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        one.execute("INSERT INTO orders VALUES (1)")
        one.commit()
        yield one, two


def test_a_locked_database(two_connections):
    one, two = two_connections
    one.execute("BEGIN IMMEDIATE")
    exc = raised(two.execute, "INSERT INTO orders VALUES (2)")
    assert judge(exc) == ("transient", "sqlite.code")


def test_other_sqlite_errors(two_connections):
    one, _two = two_connections
    assert judge(raised(one.execute, "SELECT * FROM nothing")) == ("terminal", "sqlite.code")
    twice = raised(one.execute, "INSERT INTO orders VALUES (1)")
    assert judge(twice) == ("terminal", "sqlite.error")
    assert judge(raised(one.execute, "SELECT ?", ())) == ("terminal", "sqlite.error")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred", ("transient", "tls.closed")),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", ("terminal", "tls.protocol")),
    ],
)
def test_a_copy_of_a_tls_error_has_its_text_only(text, expected):
    assert judge(ssl.SSLError(1, text)) == expected
