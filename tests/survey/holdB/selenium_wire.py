"""selenium-wire: its proxy (a copy of mitmproxy) and the wait for a request. It needs blinker below 1.8."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import holdb_stub as stub  # noqa: E402

LIBRARY = "selenium-wire==5.1.0"


def tcp_client(port, host="127.0.0.1"):
    from seleniumwire.thirdparty.mitmproxy.net.tcp import TCPClient

    client = TCPClient((host, port))
    client.connect()
    client.settimeout(0.3)
    return client


def head(port):
    from seleniumwire.thirdparty.mitmproxy.net.http import http1

    client = tcp_client(port)
    client.wfile.write(b"GET / HTTP/1.1\r\n\r\n")
    client.wfile.flush()
    http1.read_response_head(client.rfile)


def unknown():
    with stub.unknown_host():
        tcp_client(443, "does-not-exist.example")


def certificate():
    from OpenSSL import SSL

    client = tcp_client(int(stub.self_signed().rsplit(":", 1)[1]))
    client.convert_to_tls(sni="localhost", verify=SSL.VERIFY_PEER)


def wait():
    from seleniumwire.inspect import InspectRequestsMixin

    driver = InspectRequestsMixin()
    storage = type("Storage", (), {"find": lambda self, pattern: None})()
    driver.backend = type("Backend", (), {"storage": storage})()
    driver.wait_for_request("/api/data", timeout=0.3)


def no_http(conn):
    conn.recv(4096)
    conn.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    conn.close()


def create():
    from seleniumwire.request import Request

    Request(method="GET", url="https://example.com/", headers={}).create_response(status_code=999)


def cases():
    yield (
        "connection refused",
        lambda: tcp_client(stub.closed_port()),
        "transient",
        "firm",
        "seleniumwire/thirdparty/mitmproxy/net/tcp.py:454 TcpException 'Error connecting to …: [Errno 111]'",
    )
    yield (
        "server does not answer",
        lambda: head(stub.silent_port()),
        "transient",
        "firm",
        "seleniumwire/thirdparty/mitmproxy/net/tcp.py:133 TcpTimeout",
    )
    yield (
        "server disconnects before its answer",
        lambda: head(stub.closing_port()),
        "transient",
        "firm",
        (
            "seleniumwire/thirdparty/mitmproxy/net/http/http1/read.py:286 HttpReadDisconnect 'Server"
            " disconnected'"
        ),
    )
    yield (
        "request is not seen in time",
        wait,
        "transient",
        "soft",
        "seleniumwire/inspect.py:83 selenium's TimeoutException: a request is not seen within the timeout",
    )
    yield (
        "server speaks no HTTP",
        lambda: head(stub.tcp(no_http)),
        "terminal",
        "firm",
        (
            "seleniumwire/thirdparty/mitmproxy/net/http/http1/read.py:298 HttpSyntaxException 'Bad HTTP"
            " response line'"
        ),
    )
    yield (
        "host is unknown",
        unknown,
        "terminal",
        "firm",
        "seleniumwire/thirdparty/mitmproxy/net/tcp.py:454 TcpException from gaierror (EAI_NONAME)",
    )
    yield (
        "certificate is self-signed",
        certificate,
        "terminal",
        "firm",
        "seleniumwire/thirdparty/mitmproxy/net/tls.py:260 InvalidCertificateException",
    )
    yield (
        "status of a made response is unknown",
        create,
        "terminal",
        "firm",
        "seleniumwire/request.py:135 ValueError",
    )
