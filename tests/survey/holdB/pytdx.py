"""pytdx: quotes over a socket; a stub of the server on 127.0.0.1."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import holdb_stub as stub  # noqa: E402

LIBRARY = "pytdx==1.72"


def connect(port, timeout=0.5):
    from pytdx.hq import TdxHq_API

    api = TdxHq_API(raise_exception=True)
    api.connect("127.0.0.1", port, time_out=timeout)
    return api


def timed_out():
    with stub.mock.patch("socket.socket.connect", side_effect=TimeoutError("timed out")):
        connect(7709)


def call(port):
    from pytdx.hq import TdxHq_API

    api = TdxHq_API(raise_exception=True)
    api.need_setup = False
    api.connect("127.0.0.1", port, time_out=0.5)
    api.get_security_count(0)


def direct(port):
    import socket
    from pytdx.base_socket_client import TrafficStatSocket
    from pytdx.parser.get_security_count import GetSecurityCountCmd

    client = TrafficStatSocket(socket.AF_INET, socket.SOCK_STREAM)
    client.connect(("127.0.0.1", port))
    command = GetSecurityCountCmd(client)
    command.setParams(0)
    command.call_api()


def half(conn):
    import struct

    conn.recv(4096)
    conn.sendall(struct.pack("<IIIHH", 1, 1, 1, 100, 100))
    conn.close()


def pool():
    from pytdx.hq import TdxHq_API
    from pytdx.pool.hqpool import TdxHqPool_API
    from pytdx.pool.ippool import BaseIPPool

    class Empty(BaseIPPool):
        def get_ips(self):
            return []

        def setup(self):
            pass

        def teardown(self):
            pass

    api = TdxHqPool_API(TdxHq_API, Empty(TdxHq_API))
    api.api_call_max_retry_times = 0
    api.api = type("Api", (), {"ip": "127.0.0.1", "get_security_count": lambda self, market: None})()
    api.do_hq_api_call("get_security_count", 0)


def daily():
    from pytdx.reader import TdxDailyBarReader

    TdxDailyBarReader().get_df("/nonexistent/sz000001.day")


def no_path():
    from pytdx.reader import TdxDailyBarReader

    TdxDailyBarReader().get_kline_by_code("000001", "sz")


def cases():
    yield (
        "connection refused",
        lambda: connect(stub.closed_port()),
        "transient",
        "firm",
        "pytdx/base_socket_client.py:183 TdxConnectionError from ConnectionRefusedError",
    )
    yield (
        "connection timed out",
        timed_out,
        "transient",
        "firm",
        (
            "pytdx/base_socket_client.py:179 TdxConnectionError 'connection timeout error'; socket.connect is"
            " patched"
        ),
    )
    yield (
        "server does not answer a call",
        lambda: call(stub.silent_port()),
        "transient",
        "firm",
        "pytdx/base_socket_client.py:81 TdxFunctionCallError with original_exception TimeoutError",
    )
    yield (
        "server closes before the header",
        lambda: direct(stub.closing_port()),
        "transient",
        "firm",
        "pytdx/parser/base.py:147 ResponseHeaderRecvFails: the header has 0 bytes",
    )
    yield (
        "server closes before the body",
        lambda: direct(stub.tcp(half)),
        "transient",
        "firm",
        "pytdx/parser/base.py:128 ResponseRecvFails: receiving the body fails, the server disconnected",
    )
    yield (
        "all servers of the pool fail",
        pool,
        "transient",
        "soft",
        "pytdx/pool/hqpool.py:76 TdxHqApiCallMaxRetryTimesReachedException: max retry times reached",
    )
    yield (
        "file of the quotes is missing",
        daily,
        "terminal",
        "firm",
        "pytdx/reader/daily_bar_reader.py:57 TdxFileNotFoundException",
    )
    yield (
        "path of the data is not set",
        no_path,
        "terminal",
        "firm",
        "pytdx/reader/daily_bar_reader.py:25 TdxNotAssignVipdocPathException",
    )
