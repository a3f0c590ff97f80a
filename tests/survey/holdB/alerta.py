"""alerta (the client): a stub of the server."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import holdb_stub as stub  # noqa: E402

LIBRARY = "alerta==8.5.3"


def client(base, **kwargs):
    from alertaclient.api import Client

    return Client(endpoint=base, key="key", **kwargs)


def send(base, **kwargs):
    client(base, **kwargs).send_alert(
        resource="web01", event="HttpError", environment="Production", service=["web"]
    )


def error(status, message):
    import json

    return stub.answer(
        status, json.dumps({"status": "error", "message": message, "code": status, "errors": None})
    )


def unknown():
    with stub.unknown_host():
        send("http://alerta.does-not-exist.example")


def cases():
    yield (
        "connection refused",
        lambda: send(stub.refused()),
        "transient",
        "firm",
        "alertaclient/api.py HTTPClient.post: requests' ConnectionError passes through",
    )
    yield (
        "no answer in time",
        lambda: send(stub.silent(), timeout=0.3),
        "transient",
        "firm",
        "alertaclient/api.py HTTPClient.post: requests' ReadTimeout passes through",
    )
    yield (
        "server limits the alerts (429)",
        lambda: send(error(429, "Too many alerts received from this client. Rate limit exceeded.")),
        "transient",
        "firm",
        "alertaclient/api.py UnknownError(message); alerta server: RateLimit answers 429",
    )
    yield (
        "503 with the message of the server",
        lambda: send(error(503, "Service unavailable: database is not ready")),
        "transient",
        "firm",
        "alertaclient/api.py UnknownError(message)",
    )
    yield (
        "wrong key (401)",
        lambda: send(error(401, "API key parameter 'key' is invalid")),
        "terminal",
        "firm",
        "alertaclient/api.py UnknownError(message)",
    )
    yield (
        "scope is missing (403)",
        lambda: send(error(403, "Missing required scope: write:alerts")),
        "terminal",
        "firm",
        "alertaclient/api.py UnknownError(message)",
    )
    yield (
        "policy rejects the alert (403)",
        lambda: send(error(403, "[POLICY] Alert environment must be one of Production, Development")),
        "terminal",
        "firm",
        "alertaclient/api.py UnknownError(message); alerta server: RejectException",
    )
    yield (
        "host is unknown",
        unknown,
        "terminal",
        "firm",
        "requests' ConnectionError from gaierror (EAI_NONAME)",
    )
