"""webfinger: a stub of the host of an account."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import holdb_stub as stub  # noqa: E402

LIBRARY = "webfinger==1.0"


def finger(base, timeout=None):
    from webfinger import WebFingerClient

    with stub.requests_to(base):
        WebFingerClient(timeout=timeout).finger("acct:user@example.com")


def unknown():
    from webfinger import finger as plain

    with stub.unknown_host():
        plain("acct:user@does-not-exist.example")


def certificate():
    from webfinger import WebFingerClient

    WebFingerClient().finger("acct:user@example.com", host=stub.self_signed().replace("https://", ""))


def cases():
    yield (
        "no answer in time",
        lambda: finger(stub.silent(), 0.3),
        "transient",
        "firm",
        "webfinger.py: requests' ReadTimeout",
    )
    yield (
        "connection refused",
        lambda: finger(stub.refused()),
        "transient",
        "firm",
        "webfinger.py: requests' ConnectionError",
    )
    yield (
        "503 with a page of HTML",
        lambda: finger(stub.answer(503, "<html>503</html>")),
        "transient",
        "soft",
        "webfinger.py WebFingerException 'Invalid response type from server'; nothing tells the status",
    )
    yield (
        "host speaks no webfinger",
        lambda: finger(stub.answer(404, "<html>404</html>")),
        "terminal",
        "firm",
        "webfinger.py WebFingerException 'Invalid response type from server'",
    )
    yield (
        "host is unknown",
        unknown,
        "terminal",
        "firm",
        "requests' ConnectionError from gaierror (EAI_NONAME)",
    )
    yield (
        "certificate is self-signed",
        certificate,
        "terminal",
        "firm",
        "webfinger.py verify=True: requests' SSLError",
    )
